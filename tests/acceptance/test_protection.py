"""What a client can steal through a browser of a herd that root has started: nothing."""

import asyncio
import base64
import io
import json
import os
import shutil
import socket
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Error, sync_playwright

from herds import DEADLINE, Herd, new_herd
from hostile_wishes import CHROMIUM
from installed import BROWSERS, LIGHTEST
from lending import Lender
from processes import listeners_of
from remuda.base.confinement import OPENERS, ProtectionConfig, home_of
from remuda.base.landlock import landlock_version
from remuda.base.reach import hold_directory
from remuda.base.users import read_uids, take_identity
from remuda.fleet.permits.chromium import LIBRARIES, PROGRAMS
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket
from waiting import eventually

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give browsers users of their own"),
    pytest.mark.xdist_group("protection"),
]
UIDS = read_uids(ProtectionConfig.browser_uids)
NAMES = list(BROWSERS)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    # What an operator allows here has a browser run programs: that it can do no harm is looked at below.
    environ = {
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "REMUDA_ALLOW_BROWSER_ARGS": "remote-allow-system-access",
    }
    with new_herd("--slots", "3", environ=environ) as herd:
        yield herd


class Session:
    """A session and what it asks."""

    def __init__(self, herd: Herd, browser: str, **capabilities: Any) -> None:
        # On a very busy machine ChromeDriver may miss that a page could not be loaded. It would wait for five
        # minutes, and say then what it says after this time.
        wanted = {"browserName": browser, "timeouts": {"pageLoad": 20_000}, **capabilities}
        body = {"capabilities": {"alwaysMatch": wanted}}
        self._herd = herd
        answer = self._post("/session", body)
        assert "sessionId" in answer, answer
        self.id = answer["sessionId"]
        self.capabilities = answer["capabilities"]

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

    def has_windows(self, count: int) -> bool:
        handles = self._herd.request("GET", f"/session/{self.id}/window/handles")[1]["value"]
        return len(handles) == count

    def is_usable(self) -> bool:
        """Whether it still shows what it is told to."""
        if self.capabilities["browserName"] == "firefox":
            # From a page about an error it goes to no page of data.
            self.ask("url", {"url": "about:blank"})
        return self.text_of("data:text/html,well") == "well"

    def close(self) -> None:
        self._herd.request("DELETE", f"/session/{self.id}")


@pytest.fixture(scope="module", params=NAMES)
def lender(herd: Herd, request: pytest.FixtureRequest) -> Iterator[Lender[Session]]:
    """Lends a session of each browser in turn."""
    lender = Lender(partial(Session, herd, request.param), is_usable=Session.is_usable, end=Session.close)
    yield lender
    lender.end()


@pytest.fixture
def session(lender: Lender[Session]) -> Session:
    """A session that tests look at, and leave as it is but for its page."""
    return lender.lend()


@pytest.fixture(scope="module")
def powerful_firefoxes(herd: Herd) -> Iterator[Lender[Session]]:
    """Lends a session with a Firefox that the client has all rights of."""
    options = {"args": ["-headless", "-remote-allow-system-access"]}
    wanted = {"webSocketUrl": True, "moz:firefoxOptions": options}
    lender = Lender(
        partial(Session, herd, "firefox", **wanted), is_usable=Session.is_usable, end=Session.close
    )
    yield lender
    lender.end()


def processes_of(herd: Herd) -> list[tuple[str, dict[str, str]]]:
    """The command of every process of the herd, and what the kernel says of its rights."""
    return [each for process in herd.processes() for each in look_at(process)]


def look_at(process: psutil.Process) -> list[tuple[str, dict[str, str]]]:
    """The command of a process and what the kernel says of it; nothing if it is gone."""
    with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        command = " ".join(process.cmdline())
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        status = {name: text.strip() for name, _, text in (x.partition(":") for x in lines)}
        # Who has ended is there until its parent has looked; so is, for an instant, who only kills others.
        return [(command, status)] if command else []
    return []


def pages_of(herd: Herd) -> list[dict[str, str]]:
    """What the kernel says of the processes of Chromium's pages. They are looked for below their drivers: a
    page's process writes its title over its environment."""
    found = []
    for driver in herd.processes():
        with suppress(psutil.NoSuchProcess):
            below = driver.children(recursive=True) if "driver" in driver.name() else []
            found += [each for process in below for each in look_at(process)]
    return [status for command, status in found if "--type=renderer" in command]


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
    # The fork server and the nodes, which it forks, have the same command.
    ours = ("remuda.cli.main", "-server ", "redis.sock")
    theirs = [
        (command, status)
        for command, status in processes_of(herd)
        if not any(word in command for word in ours)
        and not ("forkserver" in command and 0 in uids_of(status))
    ]

    assert any("driver" in command for command, _ in theirs)
    assert any("forkserver" in command for command, _ in theirs)
    for command, status in theirs:
        assert uids_of(status) <= set(UIDS[1:]), command
        assert (status["Groups"], status["NoNewPrivs"]) == ("", "1"), command


def test_browsers_find_no_program_that_starts_others(herd: Herd, session: Session) -> None:
    paths = []
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess):  # That of the session before, perhaps.
            if process.uids().real in UIDS and "driver" in process.name():
                paths.append(process.environ()["PATH"])

    assert paths
    for path in paths:
        # Of a page's `mailto:` link, for instance.
        opener = Path(str(shutil.which("xdg-open", path=path)))
        assert opener.read_bytes() == (OPENERS / "xdg-open").read_bytes()


def test_no_browser_writes_to_its_home(herd: Herd, session: Session) -> None:
    homes = {}
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess):  # That of the session before, perhaps.
            if process.uids().real in UIDS and "driver" in process.name():
                homes[process.environ()["HOME"]] = process.uids().real

    # Its libraries look there for others to load, and DevTools save files wherever the browser can.
    assert homes
    assert not [home for home, uid in homes.items() if can_write(Path(home), uid=uid)]


@pytest.mark.skipif("firefox" not in NAMES, reason="needs Firefox")
def test_no_client_brings_what_add_ons_of_a_firefox_load(herd: Herd) -> None:
    session = Session(herd, "firefox")
    try:
        directory = Path(session.capabilities["moz:profile"]).parent
        uid = directory.stat().st_uid

        # In directories of these Firefox looks for programs that add-ons start, and for libraries that they
        # have it load (`pkcs11-modules`). WebDriver BiDi makes any directory to save a file in.
        places = [home_of(directory) / name for name in (".mozilla", ".config/mozilla")]
        assert all(place.is_dir() for place in places)
        assert not [place for place in places if can_write(place, uid=uid)]
    finally:
        session.close()


async def test_no_browser_is_without_its_own_sandbox(herd: Herd, session: Session) -> None:
    def are_pages_confined() -> bool:
        pages = pages_of(herd)
        # In namespaces of their own, and behind a filter of system calls.
        confined = [len(each["NSpid"].split()) > 1 and each["Seccomp"] == "2" for each in pages]
        return all(confined) and bool(pages) == (session.capabilities["browserName"] in CHROMIUM)

    assert not [command for command, _ in processes_of(herd) if "--no-sandbox" in command]
    await eventually(are_pages_confined, DEADLINE)


async def test_browsers_of_other_clients_reach_neither_driver_nor_browser(
    herd: Herd, session: Session
) -> None:
    def are_out_of_reach() -> bool:
        # Nodes, which the fork server forks, are behind the herd's secret.
        sockets = []
        for process in herd.processes():
            with suppress(psutil.NoSuchProcess):  # One of the session before, perhaps.
                if process.uids().real in UIDS and "forkserver" not in " ".join(process.cmdline()):
                    sockets += listeners_of(process)
        ports = {each.laddr.port for each in sockets}
        return bool(ports) and all(map(drops, ports))

    # Not at once: the driver of the next warm node may have begun to listen just now. It has a secret path.
    await eventually(are_out_of_reach, DEADLINE)


def drops(port: int) -> bool:
    """Whether packets to this port get no answer, not even a refusal."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError as error:
        return isinstance(error, TimeoutError)
    return False


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
    other = Session(herd, LIGHTEST)
    directories = set()
    try:
        for process in herd.processes():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.uids().real in UIDS and "driver" in process.name():
                    directories.add(Path(process.environ()["TMPDIR"]))

        shown = {directory: session.text_of(f"file://{directory}/") for directory in directories}
    finally:
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


POLICIES = "chrome://policy/test"


@pytest.mark.skipif("chrome" not in NAMES, reason="needs a whole Chromium")
@pytest.mark.parametrize("args", [[], ["--guest"], ["--incognito"]], ids=str)
def test_no_client_sets_policies_of_a_chromium(herd: Herd, args: list[str]) -> None:
    # One of them names a program.
    session = Session(herd, "chrome", **{"goog:chromeOptions": {"args": args, "prefs": {"homepage": ""}}})
    try:
        assert "Apply policies" not in session.text_of(POLICIES)
    finally:
        session.close()


@pytest.mark.skipif("chrome" not in NAMES, reason="needs a whole Chromium")
def test_no_playwright_client_sets_policies_of_a_chromium(herd: Herd) -> None:
    options = json.dumps({"channel": "chromium"})
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect(
            herd.url.replace("http", "ws"), headers={"x-playwright-launch-options": options}
        )
        page = browser.new_context().new_page()
        page.goto(POLICIES)
        shown = page.inner_text("body")
        browser.close()

    assert "Apply policies" not in shown


@pytest.mark.parametrize("name", [name for name in NAMES if name in CHROMIUM])
async def test_no_chromium_finds_a_program_or_a_library_in_its_profile(herd: Herd, name: str) -> None:
    session = await asyncio.to_thread(Session, herd, name)
    try:
        profile = Path(session.capabilities["chrome"]["userDataDir"])

        # Where it would look for one, and for libraries of components.
        places = [profile / name for name in (PROGRAMS, *LIBRARIES)]
        assert all(place.is_dir() for place in places)
        assert not [place for place in places if can_write(place, uid=profile.stat().st_uid)]
    finally:
        session.close()
    await eventually(lambda: not profile.parent.exists())


@pytest.mark.skipif(not landlock_version(), reason="needs Landlock")
@pytest.mark.skipif("firefox" not in NAMES, reason="needs Firefox")
async def test_no_add_on_of_a_firefox_starts_a_program(powerful_firefoxes: Lender[Session]) -> None:
    session = powerful_firefoxes.lend()
    home = Path(session.capabilities["moz:profile"]).parent
    # The program gets the manifest as its argument, and a shell takes the words of that for commands.
    program = {"path": "/bin/sh", "description": f"$(echo > {home}/started)", "type": "stdio"}
    hosts = home_of(home) / ".mozilla/native-messaging-hosts"
    # As if one could be saved there all the same.
    hosts.mkdir()
    (hosts / "evil.json").write_text(json.dumps({**program, "name": "evil", "allowed_extensions": ["e@e.e"]}))
    for path in (hosts, hosts / "evil.json"):
        path.chmod(0o755)
    ended = "browser.runtime.connectNative('evil').onDisconnect.addListener(() => browser.tabs.create({}))"
    addon = {
        "manifest_version": 2,
        "name": "evil",
        "version": "1",
        "permissions": ["nativeMessaging"],
        "background": {"scripts": ["background.js"]},
        "browser_specific_settings": {"gecko": {"id": "e@e.e"}},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("manifest.json", json.dumps(addon))
        archive.writestr("background.js", ended)
    data = {"type": "base64", "value": base64.b64encode(packed.getvalue()).decode()}
    url = urlsplit(session.capabilities["webSocketUrl"])
    address = Address(str(url.hostname), url.port or 0)
    with closing(await WebSocket.open(address, url.path, timeout=DEADLINE)) as bidi:
        order = {"id": 1, "method": "webExtension.install", "params": {"extensionData": data}}
        bidi.send(json.dumps(order))
        assert json.loads(await anext(aiter(bidi)))["type"] == "success"

        await eventually(lambda: asyncio.to_thread(session.has_windows, 2))
        assert not (home / "started").exists()


def can_write(directory: Path, *, uid: int) -> bool:
    """Whether a process of this user can make a file there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            take_identity(uid)
            (directory / "file").touch()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


RUN_SHELL = """
    const {classes, interfaces} = Components;
    const file = classes["@mozilla.org/file/local;1"].createInstance(interfaces.nsIFile);
    file.initWithPath("/bin/sh");
    const process = classes["@mozilla.org/process/util;1"].createInstance(interfaces.nsIProcess);
    process.init(file);
    process.run(true, ["-c", arguments[0]], 2);
    return process.exitValue;
"""
WRITE_FILE = "return IOUtils.writeUTF8(arguments[0], 'x').then(() => 'written', String)"
READ_FILE = "return IOUtils.readUTF8(arguments[0]).then(text => 'read', String)"


@pytest.mark.skipif(not landlock_version(), reason="needs Landlock")
@pytest.mark.skipif("firefox" not in NAMES, reason="needs Firefox")
def test_a_client_with_all_rights_of_a_firefox_has_none_of_the_machine(
    herd: Herd, powerful_firefoxes: Lender[Session]
) -> None:
    target = Path(f"/tmp/programs-{os.getpid()}")
    target.mkdir()
    target.chmod(0o777)
    session = powerful_firefoxes.lend()
    try:
        assert session.ask("moz/context", {"context": "chrome"}) is None

        def run(script: str, *args: str) -> Any:
            return session.ask("execute/sync", {"script": script, "args": args})

        own = f"{session.capabilities['moz:profile']}/own"
        assert (run(WRITE_FILE, own), run(READ_FILE, own)) == ("written", "read")
        assert run(WRITE_FILE, f"{target}/marker") != "written"
        assert run(RUN_SHELL, f"id > {target}/marker") != 0
        assert list(target.iterdir()) == []
        assert run(READ_FILE, "/etc/shadow") != "read"
        assert run(READ_FILE, f"{herd.data}/lock") != "read"
    finally:
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
    session = Session(herd, LIGHTEST)
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
