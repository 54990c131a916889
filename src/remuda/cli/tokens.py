"""`remuda token`: makes, shows and revokes the tokens of a running herd."""

import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from rich.text import Text

from remuda.base.clock import now, parse_rfc3339
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json, since, span, table, table_console

END_TIMEOUT = 60.0
"""Ending thousands of sessions takes a while."""


def create_token(
    herd: HerdAddress,
    name: str,
    *,
    account: str,
    scopes: Sequence[str],
    expires: str | None,
    access_key: bool = False,
) -> None:
    """Prints a new token, and nothing else, on standard output; its access key and secret, if asked for."""
    body = {
        "name": name,
        "account": account,
        "scopes": list(scopes),
        "expires": expires,
        "access_key": access_key,
    }
    made = ask_herd(herd, "/api/tokens", method="POST", body=body)
    until = f"expires {_expiry(made)}" if made["expiresAt"] else "does not expire"
    about = f"Token {name} of account {account} for {', '.join(made['scopes'])}; it {until}."
    print(f"{about} It is not shown again:", file=sys.stderr, flush=True)
    print(made["token"], flush=True)
    if access_key:
        print(f"{made['accessKeyId']}\n{made['secretAccessKey']}", flush=True)


def list_tokens(herd: HerdAddress, account: str | None, *, as_json: bool = False) -> None:
    """Prints the tokens of all accounts, or of one."""
    query = f"?{urlencode({'account': account})}" if account else ""
    answer = ask_herd(herd, f"/api/tokens{query}")
    if as_json:
        print_json(answer)
        return
    tokens = answer["tokens"]
    if not tokens:
        table_console().print(Text("no tokens", style="dim"))
        return
    shown = table("account", "token", "scopes", "created", "expires", "last used")
    for token in tokens:
        shown.add_row(
            token["account"],
            token["name"],
            " ".join(token["scopes"]),
            f"{since(token['createdAt'])} ago",
            Text(_expiry(token), style="red" if token["expired"] else ""),
            f"{since(token['usedAt'])} ago" if token["usedAt"] else "never",
        )
    table_console().print(shown)


def _expiry(token: Any) -> str:
    if not token["expiresAt"]:
        return "never"
    left = parse_rfc3339(token["expiresAt"]) - now()
    return f"in {span(left)}" if left > 0 else f"{span(-left)} ago"


def revoke_token(herd: HerdAddress, name: str, *, account: str, end_sessions: bool) -> None:
    """Revokes a token, and says what became of what it had started."""
    path = f"/api/tokens/{quote(account, safe='')}/{quote(name, safe='')}{end_query(end_sessions)}"
    answer = ask_herd(herd, path, method="DELETE", timeout=END_TIMEOUT)
    print(f"{account}/{name} revoked{ended_words(answer['ended'], is_asked=end_sessions)}")


def end_query(end_sessions: bool) -> str:
    """The query that has sessions ended too."""
    return "?end_sessions=true" if end_sessions else ""


def ended_words(count: int, *, is_asked: bool) -> str:
    """How many sessions and connections were ended, if that was asked for."""
    what = "session or connection" if count == 1 else "sessions and connections"
    return f", {count} {what} ended" if is_asked else ""
