"""Whatever of a herd is killed, none of its processes leaves a complaint of Python's behind."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from herds import Herd

COMPLAINT = re.compile(r"never retrieved|never awaited|was destroyed|Traceback|Fatal error|Unhandled")
PATHS = ("/api/overview", "/status", "/readyz", "/metrics", "/api/sessions")
WANTED = '{"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}'


@contextmanager
def busy(herd: Herd) -> Iterator[None]:
    """Keeps many questions under way, each of which has several commands for Redis at a time."""
    is_over = threading.Event()

    def ask(method: str, path: str, body: str | None = None) -> None:
        while not is_over.is_set():
            try:
                herd.request(method, path, body)
            except Exception:  # It may be gone; that is the point.
                is_over.wait(0.02)

    askers = [threading.Thread(target=ask, args=("GET", path)) for path in PATHS]
    askers.append(threading.Thread(target=ask, args=("POST", "/session", WANTED)))
    for asker in askers:
        asker.start()
    try:
        yield
    finally:
        is_over.set()
        for asker in askers:
            asker.join()


def test_deaths_leave_no_complaint(short_path: Path) -> None:
    herd = Herd(short_path / "data", "--slots", "1")
    try:
        herd.wait_for_line("ready")
        with busy(herd):
            herd.redis.kill()
            herd.wait_until_ready()
            herd.process_of("run", "manager").kill()
            herd.wait_until_ready()
            herd.process.kill()
        herd.wait_until_gone()

        assert [line for line in herd.log().splitlines() if COMPLAINT.search(line)] == []
    finally:
        herd.kill_everything()
