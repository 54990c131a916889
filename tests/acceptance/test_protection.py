"""What a client can steal through a browser of a herd that root has started: nothing."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Error, sync_playwright

from herds import Herd, new_herd
from installed import BROWSERS
from remuda.base.config import Config
from remuda.base.reach import hold_directory
from remuda.base.users import read_uids, take_identity
from waiting import eventually

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give browsers users of their own"),
    pytest.mark.xdist_group("protection"),
]
UIDS = read_uids(Config().browser_uids)
NAMES = list(BROWSERS)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    with new_herd("--slots", "3", environ={"AWS_SECRET_ACCESS_KEY": "s3cret"}) as herd:
        yield herd


class Session:
    """A session and what it asks."""

    def __init__(self, herd: Herd, browser: str) -> None:
        body = {"capabilities": {"alwaysMatch": {"browserName": browser}}}
        self._herd = herd
        answer = self._post("/session", body)
        assert "sessionId" in answer, answer
        self.id = answer["sessionId"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._herd.request("POST", path, json.dumps(body), **JSON)[1]["value"]

    def ask(self, command: str, body: dict[str, Any]) -> Any:
        return self._post(f"/session/{self.id}/{command}", body)

    def text_of(self, url: str) -> str:
        """What the browser shows at this URL; its words, if it does not show it."""
        failure = self.ask("url", {"url": url})
        if failure is not None:
            return str(failure["message"])
        script = "return document.documentElement.innerText || document.documentElement.textContent"
        return str(self.ask("execute/sync", {"script": script, "args": []}))

    def close(self) -> None:
        self._herd.request("DELETE", f"/session/{self.id}")


@pytest.fixture(params=NAMES)
def session(herd: Herd, request: pytest.FixtureRequest) -> Iterator[Session]:
    session = Session(herd, request.param)
    yield session
    session.close()


def processes_of(herd: Herd) -> list[tuple[str, dict[str, str]]]:
    """The command of every process of the herd, and what the kernel says of its rights."""
    found = []
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            command = " ".join(process.cmdline())
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            found.append(
                (command, {name: text.strip() for name, _, text in (x.partition(":") for x in lines)})
            )
    return found


def uids_of(status: dict[str, str]) -> set[int]:
    return {int(uid) for uid in status["Uid"].split()}


def can_connect(path: Path, *, uid: int, group: int | None = None) -> bool:
    """Whether a process of this user, and of this group if any, can talk to the socket."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            take_identity(uid, group=group)
            with socket.socket(socket.AF_UNIX) as probe:
                status = int(probe.connect_ex(str(path)) != 0)
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def test_browsers_drivers_and_nodes_have_no_rights(herd: Herd, session: Session) -> None:
    # The nursery and the nodes, which it forks, have the same command.
    ours = ("remuda.cli.main", "-server ", "redis.sock")
    theirs = [
        (command, status)
        for command, status in processes_of(herd)
        if not any(word in command for word in ours) and not ("nursery" in command and 0 in uids_of(status))
    ]

    assert any("driver" in command for command, _ in theirs)
    assert any("nursery" in command for command, _ in theirs)
    for command, status in theirs:
        assert uids_of(status) <= set(UIDS[1:]), command
        assert (status["Groups"], status["NoNewPrivs"]) == ("", "1"), command


def test_no_browser_is_without_its_own_sandbox(herd: Herd, session: Session) -> None:
    assert not [command for command, _ in processes_of(herd) if "--no-sandbox" in command]


def test_a_page_shows_no_file_of_the_machine(herd: Herd, session: Session, tmp_path: Path) -> None:
    secret = Path(f"/tmp/secret-{os.getpid()}")
    secret.write_text("s3cret")
    secret.chmod(0o644)
    try:
        paths = [secret, Path("/etc/shadow"), herd.data / "lock", Path(f"/proc/{herd.process.pid}/environ")]

        shown = [session.text_of(f"file://{path}") for path in paths]
    finally:
        secret.unlink()

    assert not [text for text in shown if "s3cret" in text or "root:" in text or "REMUDA" in text]
    assert not [text for text in shown if text.strip().isdecimal()]


def test_a_session_does_not_see_anothers_files(herd: Herd, session: Session) -> None:
    other = Session(herd, "chrome")
    directories = set()
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.uids().real in UIDS and "driver" in process.name():
                directories.add(Path(process.environ()["TMPDIR"]))

    shown = {directory: session.text_of(f"file://{directory}/") for directory in directories}
    other.close()

    assert len(directories) >= 2
    for directory in directories:
        mode = stat.S_IMODE(directory.stat().st_mode) if directory.exists() else 0o700
        assert mode == 0o700
    assert len([text for text in shown.values() if "driver.log" in text]) <= 1


def test_downloads_cannot_be_sent_out_of_the_browsers_directory(herd: Herd) -> None:
    target = Path(f"/tmp/downloads-{os.getpid()}")
    target.mkdir()
    target.chmod(0o777)
    session = Session(herd, "chrome")
    try:
        for method in ("Browser.setDownloadBehavior", "Page.setDownloadBehavior"):
            params = {"behavior": "allow", "downloadPath": str(target)}
            session.ask("goog/cdp/execute", {"cmd": method, "params": params})
            session.ask("url", {"url": "data:text/html,<a id=a download=marker href='data:,x'>x</a>"})
            session.ask("execute/sync", {"script": "document.getElementById('a').click()", "args": []})
        # Once more: when this one has failed, so have those before it.
        session.ask("url", {"url": "data:text/html,done"})

        assert list(target.iterdir()) == []
    finally:
        session.close()
        subprocess.run(["rm", "-r", target], check=True)


def test_redis_and_its_data_are_out_of_a_browsers_reach(herd: Herd) -> None:
    redis = herd.data / "redis"
    # Even by a way around the directories above.
    held = hold_directory(redis)

    assert can_connect(held / "redis.sock", uid=UIDS[-1], group=UIDS[0])
    assert not can_connect(held / "redis.sock", uid=UIDS[-1])
    assert stat.S_IMODE(herd.data.stat().st_mode) == 0o700
    files = [path for path in redis.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if stat.S_IMODE(path.stat().st_mode) != 0o600]


async def test_a_session_goes_on_when_redis_was_restarted(herd: Herd) -> None:
    session = Session(herd, "chrome")
    herd.redis.kill()

    await eventually(lambda: herd.request("GET", f"/api/sessions/{session.id}")[0] == 200, 60)
    assert session.text_of("data:text/html,still here") == "still here"
    session.close()

    def state() -> str:
        return str(herd.request("GET", f"/api/sessions/{session.id}")[1]["state"])

    # Its node tells the new Redis.
    await eventually(lambda: state() == "terminated", 60)


def test_the_start_says_what_protects_the_machine(herd: Herd) -> None:
    (line,) = [line for line in herd.lines if line.startswith("protection")]

    assert f"{UIDS[1]} to {UIDS[-1]}" in line
    assert "Landlock" in line


def test_playwrights_browsers_have_no_rights_either(herd: Herd) -> None:
    with sync_playwright() as playwright:
        shared = playwright.chromium.connect(herd.url.replace("http", "ws"))
        own = playwright.chromium.connect(f"{herd.url.replace('http', 'ws')}/playwright/chromium?own=true")
        drivers = [status for command, status in processes_of(herd) if "launch-server" in command]
        shown = []
        for browser in (shared, own):
            page = browser.new_page()
            try:
                page.goto("file:///etc/shadow")
                shown.append(page.content())
            except Error as error:
                shown.append(error.message)
        shared.close()
        own.close()

    assert len(drivers) >= 2
    assert len({min(uids_of(status)) for status in drivers} & set(UIDS[1:])) == len(drivers)
    assert {status["NoNewPrivs"] for status in drivers} == {"1"}
    assert not [text for text in shown if "root:" in text]
