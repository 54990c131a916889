"""The commands for tokens, accounts and the audit log, against a whole herd."""

import asyncio
import http.client
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from certificates import CertificateAuthority
from commands import run_command as remuda
from herds import DEADLINE, REMUDA, Herd, running_herd
from remuda.accounts.model import may_be_token, new_token

pytestmark = pytest.mark.xdist_group("accounts of the command line")


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    with (
        tempfile.TemporaryDirectory(prefix="herd-") as directory,
        running_herd(Path(directory) / "data") as herd,
    ):
        yield herd


def test_a_token_is_printed_alone_listed_and_revoked(herd: Herd) -> None:
    where = ("--server", herd.url)
    scopes = ("--scope", "use", "--scope", "archive")
    made = remuda("token", "create", "ci", "--account", "web", *scopes, "--expires", "90d", *where)
    again = remuda("token", "create", "ci", "--account", "web", *where)
    listed = remuda("token", "list", "--account", "web", REMUDA_SERVER=herd.url)
    revoked = remuda("token", "revoke", "ci", "--account", "web", "--end-sessions", *where)
    unknown = remuda("token", "revoke", "ci", "--account", "web", *where)

    token = made.stdout.removesuffix("\n")
    assert may_be_token(token), made.stderr
    assert token not in made.stderr
    assert "archive, use; it expires in 90 d" in made.stderr
    assert (again.returncode, again.stdout) == (1, "")
    assert "already has a token 'ci'" in again.stderr
    assert listed.stdout.splitlines()[1].split()[:4] == ["web", "ci", "archive", "use"]
    assert token not in listed.stdout
    assert revoked.stdout == "web/ci revoked, 0 sessions and connections ended\n"
    assert unknown.stderr == "remuda: The account 'web' has no token 'ci'; it has none.\n"


def test_limits_of_an_account_are_set_shown_and_removed(herd: Herd) -> None:
    where = ("--server", herd.url)
    first = remuda("account", "set", "team", "--sessions", "10", "--rate", "60/m", *where)
    second = remuda("account", "set", "team", "--sessions", "none", *where)
    listed = remuda("account", "list", *where)
    wrong = remuda("account", "set", "team", "--rate", "often", *where)
    deleted = remuda("account", "delete", "team", *where)
    unknown = remuda("account", "delete", "team", *where)

    assert first.stdout == "team: sessions 10, rate 60/m\n"
    assert second.stdout == "team: sessions none, rate 60/m\n"
    row = next(line.split() for line in listed.stdout.splitlines() if line.startswith("team"))
    assert row[:6] == ["team", "0", "0", "0", "none", "60/m"]
    assert wrong.stderr == "remuda: 'often' is not a rate; write it as 60/m\n"
    assert deleted.stdout == "team deleted, 0 tokens revoked\n"
    assert unknown.returncode == 1
    assert "There is no account 'team'" in unknown.stderr


def test_an_account_is_not_changed_if_one_of_its_quotas_is_wrong(herd: Herd) -> None:
    where = ("--server", herd.url)
    result = remuda("account", "set", "half", "--sessions", "3", "--quota", "grid.nothing=3/day", *where)
    listed = remuda("account", "list", *where)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("remuda: grid does not have 'nothing'; it has CreateSession, ")
    assert "half" not in listed.stdout


def test_the_audit_log_shows_what_was_done_oldest_first(herd: Herd) -> None:
    where = ("--server", herd.url)
    remuda("account", "set", "audited", "--sessions", "3", *where)
    remuda("account", "delete", "audited", *where)

    result = remuda("audit", "--limit", "2", *where)

    first, second = result.stdout.splitlines()
    assert "account.set" in first
    assert '{"sessions":3}' in first
    assert "account.delete" in second
    assert "127.0.0.1" in second


def test_the_audit_log_is_followed(herd: Herd) -> None:
    where = ("--server", herd.url)
    process = subprocess.Popen(
        [*REMUDA, "audit", "--follow", *where],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        remuda("account", "set", "followed", "--sessions", "7", *where)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")

        assert any("followed" in line for line in lines)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Herd]:
    """A herd that asks for tokens."""
    with (
        tempfile.TemporaryDirectory(prefix="herd-") as directory,
        running_herd(Path(directory) / "data", "--auth", "on") as herd,
    ):
        yield herd


def test_the_admin_token_of_the_data_directory_opens_the_own_herd(guarded: Herd, tmp_path: Path) -> None:
    own = ("--server", guarded.url, "--data", str(guarded.data))
    shown = remuda("status", *own)
    tokens = remuda("token", "list", *own)
    stranger = remuda("status", "--server", guarded.url, "--data", str(tmp_path))

    assert shown.returncode == 0, shown.stderr
    assert "slots in use" in shown.stdout
    assert tokens.stdout.splitlines()[1].split()[:3] == ["default", "admin", "admin"]
    assert stranger.returncode == 1
    assert stranger.stderr.startswith(f"remuda: The herd at {guarded.url} asks for a token: give one with ")


def test_the_last_admin_token_is_not_revoked(guarded: Herd) -> None:
    own = ("--server", guarded.url, "--data", str(guarded.data))
    result = remuda("token", "revoke", "admin", "--account", "default", *own)

    assert result.returncode == 1
    assert "is the last admin token" in result.stderr


def test_a_token_for_use_does_not_manage_tokens(guarded: Herd) -> None:
    own = ("--server", guarded.url, "--data", str(guarded.data))
    token = remuda("token", "create", "plain", "--account", "plain", *own).stdout.strip()

    result = remuda("token", "list", "--server", guarded.url, REMUDA_TOKEN=token)

    assert (result.returncode, result.stdout) == (1, "")
    assert "admin" in result.stderr
    assert token not in result.stderr


def test_a_revoked_token_is_refused_and_its_sessions_end(guarded: Herd) -> None:
    own = ("--server", guarded.url, "--data", str(guarded.data))
    token = remuda("token", "create", "ci", "--account", "web", *own).stdout.strip()
    bearer = {"Authorization": f"Bearer {token}"}
    status, created, _ = guarded.request("POST", "/session", '{"capabilities": {}}', **bearer)
    assert status == 200, created
    session = created["value"]["sessionId"]
    in_use = remuda("account", "list", *own)

    refused = remuda("account", "delete", "web", *own)
    revoked = remuda("token", "revoke", "ci", "--account", "web", "--end-sessions", *own)
    status, answer, _ = guarded.request("GET", f"/session/{session}/url", **bearer)
    log = remuda("audit", *own)

    row = next(line.split() for line in in_use.stdout.splitlines() if line.startswith("web"))
    assert row[:5] == ["web", "1", "1", "0", "none"]
    assert "has 1 sessions and connections" in refused.stderr
    assert revoked.stdout == "web/ci revoked, 1 session or connection ended\n"
    assert status == 401
    assert "default/admin" in log.stdout.splitlines()[-1]
    assert "token.revoke" in log.stdout.splitlines()[-1]
    assert token not in log.stdout + in_use.stdout + str(answer)


def test_whatever_is_killed_who_may_do_what_stays_the_same(guarded: Herd) -> None:
    own = ("--server", guarded.url, "--data", str(guarded.data))
    mine, other, revoked = (
        remuda("token", "create", name, "--account", account, *own).stdout.strip()
        for name, account in (("ci", "killed"), ("ci", "other"), ("old", "killed"))
    )
    remuda("token", "revoke", "old", "--account", "killed", *own)
    admin = (guarded.data / "admin.token").read_text().strip()
    status, created, _ = guarded.request("POST", "/session", '{"capabilities": {}}', **bearer(mine))
    assert status == 200, created
    path = f"/session/{created['value']['sessionId']}/url"
    right = {mine: 200, other: 404, revoked: 401, new_token(): 401, admin: 200}

    for victim in ("gateway", "manager", "redis"):
        (guarded.redis if victim == "redis" else guarded.process_of(victim)).kill()
        ends_at = time.monotonic() + DEADLINE
        while True:
            found = {token: try_status(guarded, path, token) for token in right}
            # While a process is missing there may be no answer, but never the wrong one.
            wrong = {found[token] for token in right if found[token] not in (right[token], 0, 502, 503)}
            assert (victim, wrong) == (victim, set())
            if found == right:
                break
            assert time.monotonic() < ends_at, (victim, found)
        guarded.wait_until_ready()

    # The api was killed with the manager. Nothing above needs it: it may take longer than a command waits.
    ends_at = time.monotonic() + DEADLINE
    while (answer := remuda("account", "list", *own)).returncode and time.monotonic() < ends_at:
        pass
    listed = answer.stdout.splitlines()
    assert next(line.split() for line in listed if line.startswith("killed"))[:3] == ["killed", "1", "1"]
    assert guarded.request("DELETE", path.removesuffix("/url"), **bearer(mine))[0] == 200


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def try_status(herd: Herd, path: str, token: str) -> int:
    """The status of an answer; 0 if there is none."""
    try:
        return herd.request("GET", path, **bearer(token))[0]
    except (OSError, http.client.HTTPException):
        return 0


@asynccontextmanager
async def strict_server(token: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a front door that answers only this token."""

    async def serve(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") == f"Bearer {token}":
            return web.json_response({"tokens": []})
        error = {"code": "unauthorized", "message": "This token is not valid."}
        return web.json_response({"error": error}, status=401)

    app = web.Application()
    app.router.add_get("/api/tokens", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_herd_with_a_certificate_of_its_own_is_asked(certificates: Path, tmp_path: Path) -> None:
    certificate, token = str(certificates / "cert.pem"), new_token()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificates / "key.pem")
    (tmp_path / "admin.token").write_text(token)
    async with strict_server(token, tls) as url:
        own = ("token", "list", "--server", url, "--data", str(tmp_path))
        trusted = await asyncio.to_thread(remuda, *own, "--cacert", certificate)
        distrusted = await asyncio.to_thread(remuda, *own)

    assert (trusted.returncode, trusted.stdout) == (0, "no tokens\n"), trusted.stderr
    assert distrusted.returncode == 1
    assert "name its certificate with --cacert FILE" in distrusted.stderr


async def test_a_certificate_can_be_named_instead_of_its_authority(tmp_path: Path) -> None:
    options, token = CertificateAuthority(tmp_path).issue("127.0.0.1"), new_token()
    certificate, key = options["internal_tls_cert"], options["internal_tls_key"]
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with strict_server(token, tls) as url:
        own = ("token", "list", "--server", url, "--token", token, "--cacert", certificate)
        trusted = await asyncio.to_thread(remuda, *own)

    assert (trusted.returncode, trusted.stdout) == (0, "no tokens\n"), trusted.stderr


async def test_no_file_helps_against_a_certificate_for_another_name(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    options = authority.issue("198.18.0.2")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options["internal_tls_cert"], options["internal_tls_key"])
    async with strict_server(new_token(), tls) as url:
        own = ("token", "list", "--server", url, "--cacert", authority.ca)
        refused = await asyncio.to_thread(remuda, *own)

    assert refused.returncode == 1
    assert "is not valid for '127.0.0.1'" in refused.stderr
    assert "use a name that it is for" in refused.stderr
    assert "--cacert" not in refused.stderr


async def test_a_token_is_shown_wherever_it_comes_from(tmp_path: Path) -> None:
    token = new_token()
    (tmp_path / "admin.token").write_text(token)
    async with strict_server(token) as url:
        ways: list[tuple[tuple[str, ...], dict[str, str]]] = [
            (("--server", url, "--token", token), {}),
            (("--url", url), {"REMUDA_TOKEN": token}),
            (("--server", url.replace("//", f"//ann:{token}@")), {}),
            (("--server", url, "--data", str(tmp_path)), {}),
            (("--port", url.rpartition(":")[2], "--data", str(tmp_path)), {}),
        ]
        for args, environ in ways:
            result = await asyncio.to_thread(remuda, "token", "list", *args, **environ)

            assert (result.returncode, result.stdout) == (0, "no tokens\n"), result.stderr


async def test_a_refusal_says_which_herd_and_how_to_give_a_token(tmp_path: Path) -> None:
    wrong = new_token()
    async with strict_server(new_token()) as url:
        where = ("--server", url, "--data", str(tmp_path))
        without = await asyncio.to_thread(remuda, "token", "list", *where)
        refused = await asyncio.to_thread(remuda, "token", "list", *where, "--token", wrong)

    assert without.returncode == 1
    assert without.stderr.startswith(f"remuda: The herd at {url} asks for a token: give one with --token or")
    assert refused.returncode == 1
    assert refused.stderr == f"remuda: The herd at {url} refused the token: This token is not valid.\n"
    assert wrong not in refused.stderr
