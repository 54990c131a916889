"""The commands that only look, and roles that run one by one."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from commands import run_command as remuda
from herds import DEADLINE, REMUDA, Herd, new_herd
from installed import LIGHTEST
from remuda import __version__
from remuda.base.errors import InvalidArgument, Unavailable
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.fleet.role import running_roles
from remuda.store import Store
from waiting import eventually

# In one process, so that only one herd has to start for them.
pytestmark = pytest.mark.xdist_group("cli")


def remuda_process(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REMUDA, *args], capture_output=True, text=True, timeout=DEADLINE, check=False)


@contextmanager
def running_role(*roles: str, data: Path, redis: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*REMUDA, "run", *roles, "--redis", redis, "--data", str(data), "--port", "0"],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


def test_the_version_is_told() -> None:
    assert remuda_process("--version").stdout == f"remuda {__version__}\n"


async def test_no_password_is_seen_among_the_processes_of_the_machine(tmp_path: Path) -> None:
    # It listens, but says nothing: the role waits.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*REMUDA, "run", "gc", "--redis", f"redis://:s3cret@{address}", "--data", str(tmp_path)],
            stderr=subprocess.DEVNULL,
        )
        try:
            shown = Path(f"/proc/{process.pid}/cmdline")
            # Firefox shows it to its clients.
            await eventually(lambda: f"redis://***@{address}".encode() in shown.read_bytes())
            assert b"s3cret" not in shown.read_bytes()
        finally:
            process.kill()
            process.wait()


def test_a_mistyped_variable_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_SLOT", "8")

    refused = remuda_process("run", "gateway")

    assert refused.returncode == 1
    assert refused.stderr == "remuda: There is no variable REMUDA_SLOT; did you mean REMUDA_SLOTS?\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("redis = 'ftp://x'", "remuda: 'ftp://x' is not a valid Redis URL"),
        ("slots = ", "remuda: {file} cannot be read: Invalid value"),
        ("slotz = 3", "remuda: {file} has unknown options: slotz; did you mean slots?"),
        (None, "remuda: There is no config file {file}"),
    ],
)
def test_a_config_file_that_is_named_is_read(content: str | None, line: str, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    if content is not None:
        file.write_text(content)

    result = remuda("run", "manager", "--config", str(file))

    assert result.returncode == 1
    assert result.stderr.startswith(line.format(file=file))
    assert result.stderr.count("\n") == 1


def test_keys_shows_every_room_or_just_what_is_asked_for() -> None:
    everything = remuda("keys").stdout
    assert "session:{session}:status" in everything
    assert "worker:{browser}:{worker}" in everything

    assert "worker" not in remuda("keys", "session:{session}:status").stdout
    assert "session:" not in remuda("keys", "--room", "archive").stdout
    unknown = remuda("keys", "nosuchkey")
    assert unknown.returncode == 1
    assert unknown.stderr == "remuda: No key of Remuda matches 'nosuchkey'; `remuda keys` shows all\n"


def test_doctor_finds_what_a_herd_needs() -> None:
    result = remuda("doctor", "--port", "0", COLUMNS="80")

    assert result.returncode == 0, result.stdout
    for word in ("python", "browser", "driver", "redis", "port", "data"):
        assert word in result.stdout
    # Each check is one line, and its advice another one, however long they are.
    assert all(line.lstrip()[0] in "✓!✗→" for line in result.stdout.splitlines())


def test_what_needs_no_herd_is_printed_as_json_too() -> None:
    keys = json.loads(remuda("keys", "session:{session}:status", "--json").stdout)["keys"]
    checks = json.loads(remuda("doctor", "--port", "0", "--json").stdout)["checks"]

    assert [key["pattern"] for key in keys] == ["session:{session}:status"]
    assert keys[0]["room"] == "grid"
    assert keys[0]["fields"]
    assert {"name", "state", "found", "advice"} == set(checks[0])


def test_doctor_fails_when_a_herd_could_not_run() -> None:
    result = remuda("doctor", "--port", "0", "--redis", "redis://127.0.0.1:1")

    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stdout


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    """A herd that the commands ask; each test ends its sessions and leaves it in service."""
    with new_herd() as herd:
        yield herd


def test_status_shows_a_running_herd(herd: Herd) -> None:
    result = remuda("status", "--url", herd.url)
    by_port = remuda("status", "--port", herd.url.rpartition(":")[2])

    assert result.returncode == 0, result.stderr
    assert by_port.returncode == 0, by_port.stderr
    assert "slots in use" in result.stdout
    for role in ("gateway", "manager", "orchestrator", "api"):
        assert role in result.stdout


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("status", "overview"),
        ("sessions", "sessions"),
        ("sessions --ended", "sessions?state=terminated"),
        ("jobs", "archive/jobs"),
        ("token list", "tokens"),
        ("account list", "accounts"),
        ("audit", "audit"),
        ("settings", "settings"),
        ("usage", "usage"),
        ("metering check", "metering/drift"),
        ("metering corrections", "metering/corrections"),
        ("metering owners", "metering/owners"),
        ("metering poison", "metering/poison"),
    ],
)
def test_what_the_api_answers_is_printed_as_json(herd: Herd, command: str, path: str) -> None:
    answer = herd.request("GET", f"/api/{path}")[1]

    printed = remuda(*command.split(), "--json", "--server", herd.url)

    assert json.loads(printed.stdout).keys() == answer.keys(), printed.stderr


@pytest.mark.parametrize("words", ["status --watch --json", "audit --follow --json"])
def test_what_is_watched_is_not_printed_as_json(herd: Herd, words: str) -> None:
    result = remuda(*words.split(), "--server", herd.url)

    assert result.returncode == 1
    assert result.stderr.endswith(": leave out --json\n")


def open_session(herd: Herd, **capabilities: str) -> tuple[int, Any]:
    """Status and value of the answer to a client that wants a session."""
    wanted = {"browserName": LIGHTEST, **capabilities}
    body = json.dumps({"capabilities": {"alwaysMatch": wanted}})
    status, answer, _ = herd.request("POST", "/session", body)
    return status, answer["value"]


def has_no_sessions(herd: Herd) -> bool:
    return not herd.request("GET", "/api/sessions")[1]["sessions"]


def test_sessions_are_shown_and_killed(herd: Herd) -> None:
    name = "pay by card, with a name that alone is longer than half a line"
    status, created = open_session(herd, **{"se:name": name})
    assert status == 200
    session = created["sessionId"]

    shown = remuda("sessions", "--url", herd.url, COLUMNS="80")
    killed = remuda("sessions", "kill", session, "--url", herd.url)
    again = remuda("sessions", "kill", session, "--url", herd.url)
    nobody = remuda("sessions", "kill", "nobody", "--url", herd.url)

    # Elsewhere than in a terminal rows are not folded: programs read them.
    (row,) = [line for line in shown.stdout.splitlines() if session in line]
    assert name in row
    assert killed.stdout == f"{session} ended\n"
    assert again.stdout == f"{session} had already ended\n"
    assert (nobody.returncode, nobody.stderr) == (1, "remuda: There is no session 'nobody'.\n")


async def test_a_herd_behind_tls_is_asked(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_request: web.Request) -> web.Response:
        return web.json_response({"sessions": []})

    app = web.Application()
    app.router.add_get("/api/sessions", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with pytest.raises(Unavailable, match="self-signed certificate"):
            await asyncio.to_thread(ask_herd, HerdAddress.parse(url), "/api/sessions")
        named = HerdAddress.parse(url, cacert=certificates / "cert.pem")
        assert await asyncio.to_thread(ask_herd, named, "/api/sessions") == {"sessions": []}
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "cert.pem"))
        trusted = HerdAddress.parse(url)
        assert await asyncio.to_thread(ask_herd, trusted, "/api/sessions") == {"sessions": []}
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:4444", "ftp://a:1", "http://", "https://a:port", "http://[::1"]
)
def test_what_is_not_the_url_of_a_front_door_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the URL of a front door"):
        HerdAddress.parse(url)


def test_the_only_orchestrator_is_taken_out_of_service_and_put_back(herd: Herd) -> None:
    name = (herd.data / "orchestrator-id").read_text()
    asyncio.run(eventually(lambda: has_no_sessions(herd), DEADLINE))

    drained = remuda("drain", name[:-1], "--wait", "--url", herd.url)
    shown = remuda("status", "--url", herd.url)
    status, refused = open_session(herd)
    resumed = remuda("drain", name, "--undo", "--url", herd.url)
    served, created = open_session(herd)
    nobody = remuda("drain", "nobody", "--url", herd.url)
    herd.request("DELETE", f"/session/{created['sessionId']}")

    assert drained.stdout == f"{name} drains, 0 sessions\n{name} has no sessions left\n"
    assert "1 of 1 orchestrators draining" in shown.stdout
    assert (status, refused["error"]) == (500, "session not created")
    assert "no orchestrator is in service" in refused["message"]
    assert resumed.stdout == f"{name} is in service, 0 sessions\n"
    assert served == 200
    assert (nobody.returncode, nobody.stderr) == (1, "remuda: There is no orchestrator 'nobody'.\n")


def test_what_cannot_be_done_with_sessions_is_said() -> None:
    result = remuda("sessions", "feed")

    assert result.returncode == 2
    assert "No such command 'feed'" in result.stderr


def test_a_session_is_shown_and_killed_by_the_beginning_of_its_id(herd: Herd) -> None:
    where = ("--server", herd.url)
    _, created = open_session(herd, **{"se:name": "pay by card"})
    session = created["sessionId"]

    shown = remuda("sessions", "show", session[:8], *where)
    unnamed = remuda("sessions", "kill", "", *where)
    killed = remuda("sessions", "kill", session[:8], *where)
    ended = remuda("sessions", "--ended", *where)
    afterwards = remuda("sessions", "show", session[:8], *where)
    details = remuda("sessions", "show", session, "--json", *where)
    nobody = remuda("sessions", "show", "nobody", *where)

    rows = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert rows["session"].strip() == session
    assert rows["name"].strip() == "pay by card"
    assert rows["state"].strip() == "alive"
    assert unnamed.stderr == "remuda: An empty word names none of the sessions\n"
    assert killed.stdout == f"{session} ended\n"
    assert ended.stdout.splitlines()[1].split()[0] == session
    assert "pay by card" in ended.stdout.splitlines()[1]
    assert "terminated" in afterwards.stdout
    assert "Ended through the API" in afterwards.stdout
    assert json.loads(details.stdout)["id"] == session
    assert (nobody.returncode, nobody.stderr) == (1, "remuda: There is no session 'nobody'.\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("up --isolation none", "--isolation is 'none'; it can be auto, shared, own"),
        ("up --workers -1", "--workers is -1; it must be a whole number, 0 or more"),
        ("metering reconcile s3/buckets", "'s3/buckets' is not a state; write it as s3/buckets/photos/st"),
        ("metering reconcile --value 3", "--value needs a state, such as s3/buckets/photos/storageUtilized"),
        ("archive -i /no/such/file", "/no/such/file cannot be read: No such file or directory\n"),
    ],
)
def test_what_was_typed_is_named_and_refused(words: str, line: str) -> None:
    result = remuda(*words.split())

    assert result.returncode == 1
    assert result.stderr.startswith(f"remuda: {line}")
    assert result.stderr.count("\n") == 1


def test_a_setting_is_not_less_than_nothing(herd: Herd) -> None:
    for wrong in ("queue=-1", "queue=nan", "queue=inf"):
        result = remuda("settings", wrong, "--server", herd.url)

        line = f"remuda: {wrong!r} does not set queue to a number of seconds: queue=300\n"
        assert (result.returncode, result.stderr) == (1, line)


def test_a_step_is_one_of_four() -> None:
    result = remuda("usage", "--step", "week")

    assert result.returncode == 2
    assert "'week' is not one of 'slot', 'hour', 'day', 'total'" in result.stderr


def test_status_of_no_herd_is_one_clear_line() -> None:
    result = remuda("status", "--url", "http://127.0.0.1:1")

    assert result.returncode == 1
    assert result.stderr == (
        "remuda: No herd answers at http://127.0.0.1:1 (Connection refused); "
        "start one with `remuda up`, or name another with --server URL\n"
    )


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("run", "cowboy"), "remuda: There is no role 'cowboy'; the roles are gateway, "),
        (("run", "manager"), "remuda: `remuda run` needs the URL of a Redis: set --redis or REMUDA_REDIS"),
        (("run", "manager", "--redis", "ftp://x"), "remuda: 'ftp://x' is not a valid Redis URL"),
    ],
)
def test_a_role_that_cannot_run_says_why(args: tuple[str, ...], line: str) -> None:
    result = remuda_process(*args)

    assert result.returncode == 1
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_a_role_whose_data_directory_is_a_file_says_so(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = remuda_process("run", "orchestrator", "--redis", redis_url, "--data", str(tmp_path / "file"))

    assert result.returncode == 1
    assert result.stderr.startswith("remuda: orchestrator cannot start: ")
    assert str(tmp_path / "file") in result.stderr
    assert result.stderr.count("\n") == 1


STARTS_BROWSERS = [("up", "--port", "0"), ("run", "orchestrator"), ("run", "worker", "--browser", "chromium")]


@pytest.mark.parametrize("command", STARTS_BROWSERS)
def test_who_starts_browsers_refuses_a_redis_that_answers_without_a_password(
    debian_url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = remuda_process(*command, "--redis", debian_url, "--data", str(tmp_path / "data"))

    assert result.returncode == 1
    assert result.stderr.startswith(
        f"remuda: Redis at {debian_url[len('unix://') :]} answers without a password"
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [("orchestrator", "--insecure-redis"), ("storage",)])
def test_other_roles_and_operators_who_say_so_use_such_a_redis(
    debian_url: str, tmp_path: Path, args: tuple[str, ...]
) -> None:
    # What stops them is their data directory.
    (tmp_path / "file").touch()

    result = remuda_process("run", *args, "--redis", debian_url, "--data", str(tmp_path / "file"))

    assert "without a password" not in result.stderr
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.parametrize("command", STARTS_BROWSERS)
@pytest.mark.parametrize("fault", ["does not exist or cannot be written to", "is longer than "])
def test_who_starts_browsers_says_that_the_temporary_directory_is_unusable(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], fault: str
) -> None:
    place = tmp_path / ("x" * 28)
    if "longer" in fault:
        place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))

    result = remuda_process(*command, "--redis", redis_url, "--data", str(tmp_path / "data"))

    assert result.returncode == 1
    assert result.stderr.startswith(f"remuda: The temporary directory {place} {fault}")
    assert result.stderr.endswith(": set TMPDIR to another path, such as /tmp\n")
    assert result.stderr.count("\n") == 1


async def test_roles_run_one_by_one_and_leave_no_trace(redis_url: str, store: Store, tmp_path: Path) -> None:
    async def names() -> set[str]:
        return {role["name"] for role in await running_roles(store)}

    async def all_run() -> bool:
        return await names() == {"gateway", "manager", "api"}

    with (
        running_role("gateway", data=tmp_path, redis=redis_url),
        running_role("manager", "api", data=tmp_path, redis=redis_url),
    ):
        await eventually(all_run, deadline=DEADLINE)

    assert await names() == set()
