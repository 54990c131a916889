"""A whole herd under test: `remuda up` as a process of its own, on a free port, with its own data."""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from processes import command_of, find_processes, kill, name_of
from remuda.base.processes import die_with_parent
from remuda.store.embedded import url_of

REMUDA = [sys.executable, "-m", "remuda.cli.main"]
# Generous: the machine may be busy with other tests. Nothing waits for it in vain.
DEADLINE = 60.0
# Browsers keep no variable that is called REMUDA_, but those of the locale.
MARK = "LC_REMUDA_TEST_HERD"


class Herd:
    """A running `remuda up`."""

    def __init__(
        self,
        data: Path,
        *args: str,
        environ: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> None:
        self.data = data
        self.mark = str(uuid.uuid4())
        self.lines: list[str] = []
        self._stdout: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [*REMUDA, "up", "--port", "0", "--data", str(data), *args],
            env={**os.environ, **(environ or {}), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(data.parent / f"{data.name}.log").open("ab"),
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._stdout.put(line.rstrip("\n"))
        self._stdout.put(None)

    def wait_for_line(self, wanted: str) -> Self:
        """Waits until it has printed a line that begins so."""
        deadline = time.monotonic() + DEADLINE
        while not any(line.startswith(wanted) for line in self.lines):
            line = self._stdout.get(timeout=max(0.0, deadline - time.monotonic()))
            assert line is not None, f"the herd ended before {wanted!r}: {self.log()}"
            self.lines.append(line)
        return self

    def log(self) -> str:
        return (self.data.parent / f"{self.data.name}.log").read_text()

    @property
    def url(self) -> str:
        (line,) = [line for line in self.lines if line.startswith("url ")]
        return line.split()[-1]

    @property
    def redis_url(self) -> str:
        return url_of(self.data / "redis")

    @property
    def redis(self) -> psutil.Process:
        (found,) = [each for each in self.processes() if "-server" in name_of(each)]
        return found

    def request(
        self, method: str, path: str, body: bytes | str | None = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, decoded JSON and headers of an answer."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=DEADLINE)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None, response.headers
        finally:
            connection.close()

    def processes(self) -> list[psutil.Process]:
        """Everything that it has started and that still runs, itself included."""
        # Redis writes its title over its environment, but the title names its socket.
        return find_processes(MARK, self.mark, named=f":{self.data.resolve()}/redis/")

    def process_of(self, *words: str) -> psutil.Process:
        """The one process whose command line has all these words."""
        (found,) = [each for each in self.processes() if all(word in command_of(each) for word in words)]
        return found

    def stop(self) -> int:
        """Ends it as an operator would; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def wait_until_ready(self) -> None:
        """Waits until a session could be created, after something was killed."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass  # Its gateway, perhaps.
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def wait_until_gone(self) -> None:
        """Waits until nothing of it runs any more."""
        deadline = time.monotonic() + DEADLINE
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {[command_of(each) for each in left]}"
            time.sleep(0.01)

    def kill_everything(self) -> None:
        """The last resort of a test that failed."""
        for process in self.processes():
            kill(process)


@contextmanager
def running_herd(
    data: Path, *args: str, environ: Mapping[str, str] | None = None, user: int | None = None
) -> Iterator[Herd]:
    """A herd that is ready, and gone afterwards; started by this user, which takes root."""
    herd = Herd(data, *args, environ=environ, user=user)
    try:
        yield herd.wait_for_line("ready")
        herd.stop()
    finally:
        herd.kill_everything()


@contextmanager
def new_herd(*args: str, environ: Mapping[str, str] | None = None, user: int | None = None) -> Iterator[Herd]:
    """A herd whose data go with it; started by this user, which takes root."""
    # Not pytest's directory: a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="herd-") as directory:
        if user is not None:
            os.chown(directory, user, user)
            environ = {**(environ or {}), "HOME": directory}
        with running_herd(Path(directory) / "data", *args, environ=environ, user=user) as herd:
            yield herd
