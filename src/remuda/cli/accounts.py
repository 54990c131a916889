"""`remuda account`: shows the accounts of a running herd, and sets their limits."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from rich.text import Text

from remuda.accounts.model import read_rate
from remuda.base.errors import InvalidArgument
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json, since, table, table_console
from remuda.cli.tokens import END_TIMEOUT, end_query, ended_words

_quota = re.compile(r"([a-z0-9-]+\.\w+)=(?:none|(\d{1,15})([kMGT])?B?(?:/(day|month))?)", re.ASCII).fullmatch
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
NONE = "none"
"""What a person writes to remove a limit."""


def list_accounts(herd: HerdAddress, *, as_json: bool = False) -> None:
    """Prints every account with its limits and what it uses."""
    answer = ask_herd(herd, "/api/accounts")
    if as_json:
        print_json(answer)
        return
    accounts = answer["accounts"]
    if not accounts:
        table_console().print(Text("no accounts", style="dim"))
        return
    shown = table("account", "tokens", "in use", "waiting", "limit", "rate", "created")
    for account in accounts:
        limits = account["limits"]
        is_full = limits["sessions"] is not None and account["inUse"] >= limits["sessions"]
        shown.add_row(
            account["name"],
            str(account["tokens"]),
            Text(str(account["inUse"]), style="yellow" if is_full else ""),
            str(account["inUse"] - account["held"]),
            _limit(limits["sessions"]),
            _limit(limits["rate"], unit="/m"),
            f"{since(account['createdAt'])} ago",
        )
    table_console().print(shown)


def set_limits(
    herd: HerdAddress,
    name: str,
    *,
    sessions: str | None,
    rate: str | None,
    hard: Sequence[str] = (),
    soft: Sequence[str] = (),
) -> None:
    """Sets the limits and quotas that are given, and prints all limits of the account."""
    quotas = read_quotas(hard=hard, soft=soft)
    body: dict[str, int | None] = {}
    if sessions is not None:
        body["sessions"] = None if sessions == NONE else _read_count(sessions)
    if rate is not None:
        body["rate"] = None if rate == NONE else read_rate(rate)
    # Quotas first: what is wrong with them only the herd knows, and then nothing is changed.
    changed = []
    if quotas:
        path = f"/api/quotas/{quote(name, safe='')}"
        changed = ask_herd(herd, path, method="PATCH", body={"quotas": quotas})["quotas"]
    limits = ask_herd(herd, _path(name), method="PATCH", body=body)["limits"]
    print(f"{name}: sessions {_limit(limits['sessions'])}, rate {_limit(limits['rate'], unit='/m')}")
    for each in changed:
        per = "" if each["period"] == "now" else f"/{each['period']}"
        used = f"{each['used']:,} used"
        print(f"{name}: {each['quota']} {_limit(each['hard'])}{per}, soft {_limit(each['soft'])}, {used}")


def read_quotas(*, hard: Sequence[str], soft: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The quotas that a person writes as `grid.browserSeconds=36000/day`, as the API takes them."""
    quotas: dict[str, dict[str, Any]] = {}
    for kind, texts in (("hard", hard), ("soft", soft)):
        for text in texts:
            match = _quota(text.strip())
            if match is None:
                raise InvalidArgument(
                    f"{text[:80]!r} is not a quota; write it as grid.browserSeconds=36000/day, "
                    "artifacts.storageUtilized=10GB or grid.browserSeconds=none"
                )
            name, number, unit, period = match.groups()
            change = quotas.setdefault(name, {})
            change[kind] = None if number is None else int(number) * _UNITS[unit or ""]
            if period:
                change["period"] = period
    return quotas


def delete_account(herd: HerdAddress, name: str, *, end_sessions: bool) -> None:
    """Deletes an account with its tokens."""
    path = _path(name) + end_query(end_sessions)
    answer = ask_herd(herd, path, method="DELETE", timeout=END_TIMEOUT)
    count = len(answer["tokens"])
    tokens = f"{count} token{'' if count == 1 else 's'} revoked"
    print(f"{name} deleted, {tokens}{ended_words(answer['ended'], is_asked=end_sessions)}")


def _path(account: str) -> str:
    return f"/api/accounts/{quote(account, safe='')}"


def _read_count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidArgument(f"{text[:50]!r} is not a number of sessions; write it as 10, or `none`")
    return int(text)


def _limit(value: Any, unit: str = "") -> str:
    return NONE if value is None else f"{value}{unit}"
