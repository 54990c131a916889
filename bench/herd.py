"""The herd against a bare ChromeDriver on this machine: `python -m bench.herd`.

The same command, and the creation of the same session, once through the herd and once straight to a driver,
in turns; the creation of a plain session by a herd that keeps browsers warm; and what `remuda up` takes
before any browser runs. Differences of medians within one run count.

The bare driver runs as the herd's do: under a user of its own, so that Chromium has its sandbox. What the
sandbox takes is the difference to another bare driver, whose Chromium has none.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.report import Samples, Target, report
from remuda.base.config import Config
from remuda.base.confinement import Confinement, Protection, ProtectionConfig, browser_environ, protection_of
from remuda.grid.browsers import find_browsers
from remuda.grid.browsers.families import CHROME

# Not called REMUDA_, which is for options.
MARK = "LC_REMUDA_BENCH"
START_DEADLINE = 30.0
WARM = 2
NO_SANDBOX = "--no-sandbox"
_LISTENS = re.compile(r"started successfully on port (\d+)")


class Remote:
    """A WebDriver server, and one session at it."""

    def __init__(self, name: str, netloc: str, *args: str) -> None:
        """`args` are those that its browsers are started with."""
        self.name = name
        self.args = args
        self._connection = http.client.HTTPConnection(netloc, timeout=60)
        self._session = ""

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        payload = None if body is None else json.dumps(body)
        self._connection.request(method, path, payload, {"Content-Type": "application/json; charset=utf-8"})
        response = self._connection.getresponse()
        value = json.loads(response.read())["value"]
        if response.status != 200:
            raise SystemExit(f"{self.name} answers {response.status}: {value}")
        return value

    def open(self, request: Any) -> float:
        """Creates a session; the seconds that took."""
        began = time.perf_counter()
        self._session = self._ask("POST", "/session", request)["sessionId"]
        return time.perf_counter() - began

    def command(self) -> float:
        """One small command; the seconds that took."""
        began = time.perf_counter()
        self._ask("GET", f"/session/{self._session}/url")
        return time.perf_counter() - began

    def go(self, url: str) -> None:
        self._ask("POST", f"/session/{self._session}/url", {"url": url})

    def close(self) -> None:
        self._ask("DELETE", f"/session/{self._session}")


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    ups = [measure_up() for _ in range(options.ups)]
    with ExitStack() as stack:
        protection = protection_of(Config(ProtectionConfig()))
        args = [*CHROME.args, *CHROME.headless_args]  # As the herd does by itself.
        sandbox = [] if protection.has_sandbox else [NO_SANDBOX]
        bare = stack.enter_context(bare_driver("bare", protection, *args, *sandbox))
        exposed = stack.enter_context(bare_driver("bare, no sandbox", protection, *args, NO_SANDBOX))
        herd = Remote("herd", stack.enter_context(herd_up())[0])
        samples = measure([bare, exposed, herd], sessions=options.sessions, commands=options.commands)
    samples["warm session, ms"] = {"herd": measure_warm(options.sessions)}
    samples["up, s to ready"] = {"herd": [seconds for seconds, _ in ups]}
    samples["up, MB without a browser"] = {"herd": [megabytes for _, megabytes in ups]}
    report("herd", samples, judge(samples))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=15, help="sessions created at each")
    parser.add_argument("--commands", type=int, default=400, help="commands sent to each")
    parser.add_argument("--ups", type=int, default=3, help="starts of the herd")
    return parser.parse_args()


def measure(remotes: list[Remote], *, sessions: int, commands: int) -> Samples:
    """Creations and commands in ms, in turns."""
    creations: dict[str, list[float]] = {remote.name: [] for remote in remotes}
    answers: dict[str, list[float]] = {remote.name: [] for remote in remotes}
    for turn in range(sessions + 1):
        for remote in remotes if turn % 2 else remotes[::-1]:
            took = remote.open(session_request(*remote.args))
            if turn:  # The first start of a browser reads it from the disk.
                creations[remote.name].append(took * 1000)
            if turn < sessions:
                remote.close()
    for turn in range(commands):
        for remote in remotes if turn % 2 else remotes[::-1]:
            answers[remote.name].append(remote.command() * 1000)
    for remote in remotes:
        remote.close()
    return {"session, ms": creations, "command, ms": answers}


def measure_warm(sessions: int) -> list[float]:
    """Creations in ms of sessions with default capabilities, each with a browser that waits for it."""
    took = []
    with herd_up("--warm", str(WARM)) as (netloc, mark):
        herd = Remote("warm herd", netloc)
        for _ in range(sessions):
            await_warm(mark)
            took.append(herd.open(session_request()) * 1000)
            herd.close()
    return took


def await_warm(mark: str) -> None:
    """Waits until all warm browsers have a page: as they start one by one, the first is ready then."""
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        drivers = [process for process in processes_of(mark) if is_driver(process)]
        if sum(map(has_page, drivers)) >= WARM:
            return
        time.sleep(0.05)
    raise SystemExit("the herd keeps no browser warm")


def is_driver(process: psutil.Process) -> bool:
    try:
        return "chromedriver" in process.name()
    except psutil.NoSuchProcess:
        return False


def has_page(driver: psutil.Process) -> bool:
    try:
        # Looked for below the driver: a page's process writes its title over its environment.
        return any("--type=renderer" in " ".join(each.cmdline()) for each in driver.children(recursive=True))
    except psutil.NoSuchProcess:
        return False


def session_request(*args: str) -> dict[str, Any]:
    """The request for a session of the browser that the herd offers first."""
    wanted = {"browserName": CHROME.name, CHROME.options: {"args": list(args)}}
    return {"capabilities": {"alwaysMatch": wanted}}


def judge(samples: Samples) -> list[Target]:
    """The numbers that must be reached."""

    def added(what: str) -> float:
        # Turn by turn: what else the machine does changes from one to the next, and hits both of one alike.
        herd, bare = samples[what]["herd"], samples[what]["bare"]
        return median(ours - theirs for ours, theirs in zip(herd, bare, strict=True))

    return [
        Target("command, added", added("command, ms"), 0.5, "ms", is_ceiling=True),
        Target("session, added", added("session, ms"), 50.0, "ms", is_ceiling=True),
        Target(
            "warm session, in all", median(samples["warm session, ms"]["herd"]), 100.0, "ms", is_ceiling=True
        ),
        Target("up until ready", median(samples["up, s to ready"]["herd"]), 5.0, "s", is_ceiling=True),
        Target(
            "up, memory", median(samples["up, MB without a browser"]["herd"]), 250.0, "MB", is_ceiling=True
        ),
    ]


def measure_up() -> tuple[float, float]:
    """Seconds until the herd is ready, and the megabytes that it then takes in all."""
    began = time.perf_counter()
    with herd_up() as (_, mark):
        took = time.perf_counter() - began
        return took, settled_megabytes(mark)


def settled_megabytes(mark: str) -> float:
    """Resident memory of all its processes, shared pages counted each time, once its warm driver runs."""
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        found = processes_of(mark)
        if any(map(is_driver, found)):
            return sum(process.memory_info().rss for process in found) / 1e6
        time.sleep(0.05)
    raise SystemExit("the herd started no driver")


def processes_of(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            # Redis writes its title over its environment; its title names its socket, and that the mark.
            if process.environ().get(MARK) == mark or mark in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@contextmanager
def herd_up(*options: str) -> Iterator[tuple[str, str]]:
    """A herd of its own; its address, and the mark of its processes."""
    mark = uuid.uuid4().hex[:12]
    directory = Path(tempfile.gettempdir()) / f"bench-{mark}"
    command = [
        sys.executable,
        "-m",
        "remuda.cli.main",
        "up",
        "--port",
        "0",
        "--data",
        str(directory),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: mark})
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "ready":
            lines.append(process.stdout.readline().strip())
            if not lines[-1]:
                raise SystemExit("the herd did not start")
        (url,) = [line.split()[-1] for line in lines if line.startswith("url ")]
        yield urlsplit(url).netloc, mark
    finally:
        process.terminate()
        process.wait(START_DEADLINE)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def bare_driver(name: str, protection: Protection, *args: str) -> Iterator[Remote]:
    """A ChromeDriver without anything in front of it, under a user of its own if root starts it."""
    confinement = Confinement.claim(protection)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        confinement.own(Path(directory))
        process = subprocess.Popen(
            [str(find_browsers()[0].driver), "--port=0", "--log-level=WARNING"],
            stdout=subprocess.PIPE,
            text=True,
            env=browser_environ(Path(directory)),
            preexec_fn=confinement.beside(),
        )
        try:
            assert process.stdout is not None
            found = next(match for line in process.stdout if (match := _LISTENS.search(line)))
            yield Remote(name, f"127.0.0.1:{found[1]}", *args)
        finally:
            process.terminate()
            process.wait(START_DEADLINE)
            confinement.release()


if __name__ == "__main__":
    main()
