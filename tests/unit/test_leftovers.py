"""What outlives its node: how it is told from what belongs to a node that lives."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_directories import nest
from remuda.fleet import leftovers
from remuda.fleet.leftovers import clear_orphans, find_long_path, holder_name

MARK = "REMUDA_TEST_HOLDER"
# The end of any name that is given here.
TAIL = holder_name().rpartition("-")[2]


@pytest.fixture(autouse=True)
def _own_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that no herd on this machine looks for, which would clear up before the test does."""
    monkeypatch.setattr(leftovers, "MARK", MARK)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty but for what the test puts there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def dead_pid() -> int:
    """The pid of a process that is no more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


@pytest.fixture
def zombie_pid() -> Iterator[int]:
    """The pid of a process that has ended, but which its parent has not buried."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    yield ended.pid
    ended.wait()


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    """A process that carries a node's name, and waits."""
    return waiting([], {MARK: mark})


def waiting(args: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process with this command line and environment, and nothing else in it."""
    command = [sys.executable, "-c", "input(1)", *args]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdout is not None
    process.stdout.read(1)  # By now it can be seen whose it is.
    return process


def test_a_holders_name_tells_its_process_and_is_used_once() -> None:
    assert holder_name().startswith(f"remuda-{os.getpid()}-")
    assert holder_name() != holder_name()


def test_a_holders_name_is_short_enough_for_a_socket_below_it() -> None:
    assert len(holder_name()) < 32


def test_the_directory_of_a_node_that_is_no_more_goes_away(temporary: Path, dead_pid: int) -> None:
    (temporary / f"remuda-{dead_pid}-5c2e-{TAIL}" / "profile").mkdir(parents=True)

    clear_orphans([os.geteuid()])

    assert list(temporary.iterdir()) == []


def test_a_directory_of_another_user_is_not_taken_for_a_dead_nodes(temporary: Path, dead_pid: int) -> None:
    (temporary / f"remuda-{dead_pid}-5c2e-{TAIL}" / "profile").mkdir(parents=True)

    clear_orphans([os.geteuid() + 1])

    assert len(list(temporary.rglob("*"))) == 2


def test_no_directory_keeps_a_holder_from_its_start(temporary: Path, dead_pid: int) -> None:
    nest(temporary / f"remuda-{dead_pid}-5c2e-{TAIL}")

    clear_orphans([os.geteuid()])

    assert list(temporary.iterdir()) == []


def test_a_node_whose_pid_another_process_has_now_is_no_more(temporary: Path) -> None:
    name = f"remuda-{os.getpid()}-0-{TAIL}"
    (temporary / name).mkdir()

    with sleeper(name) as orphan:
        clear_orphans([os.geteuid()])

        orphan.wait(10)  # By itself it would never end.
    assert list(temporary.iterdir()) == []


def test_a_node_that_nobody_has_buried_yet_is_no_more(temporary: Path, zombie_pid: int) -> None:
    ticks = Path(f"/proc/{zombie_pid}/stat").read_text().rpartition(")")[2].split()[19]
    (temporary / f"remuda-{zombie_pid}-{int(ticks):x}-{TAIL}").mkdir()

    clear_orphans([os.geteuid()])

    assert list(temporary.iterdir()) == []


def test_a_node_in_another_namespace_of_pids_is_none_of_ours(temporary: Path, dead_pid: int) -> None:
    namespace = int(TAIL[:4], 16) ^ 1
    (temporary / f"remuda-{dead_pid}-5c2e-{namespace:04x}{TAIL[4:]}").mkdir()

    clear_orphans([os.geteuid()])

    assert len(list(temporary.iterdir())) == 1


def test_what_is_not_a_dead_nodes_stays(temporary: Path, dead_pid: int) -> None:
    strangers = {f"remuda-{dead_pid}", f"x-remuda-{dead_pid}-1-2", "remuda-1x-abc-def"}
    kept = {holder_name(), "remuda-test-x1"} | strangers
    for name in kept:
        (temporary / name).mkdir()

    clear_orphans([os.geteuid()])

    assert {path.name for path in temporary.iterdir()} == kept


@pytest.mark.usefixtures("temporary")
def test_the_processes_of_a_node_that_is_no_more_are_killed_and_no_others(dead_pid: int) -> None:
    with sleeper(f"remuda-{dead_pid}-5c2e-{TAIL}") as orphan, sleeper(holder_name()) as kept:
        clear_orphans([os.geteuid()])

        orphan.wait(10)  # By itself it would never end.
        assert kept.poll() is None
        kept.kill()


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("rest", [{}, {"ialogs --ozone-platform": "headless --use-angle=swiftshader data:,"}])
def test_a_browser_that_has_overwritten_its_environment_is_known_by_its_files(
    dead_pid: int, rest: dict[str, str]
) -> None:
    files = [f"--user-data-dir=/tmp/remuda-{dead_pid}-5c2e-{TAIL}/profile"]
    # The second only looks at them, like the pager of an operator.
    with waiting(files, rest) as browser, waiting(files, {"PAGER": "less"}) as reader:
        clear_orphans([os.geteuid()])

        browser.wait(10)  # By itself it would never end.
        assert reader.poll() is None
        reader.kill()


def test_a_directory_is_too_long_if_a_socket_of_chromium_does_not_fit_below_it() -> None:
    socket = len("/.org.chromium.Chromium.123456/SingletonSocket")
    most = 107 - socket - len("/remuda-4194304-01234567-01234567")

    assert find_long_path(Path("/" + "x" * (most - 1))) is None
    assert f"longer than {most} bytes" in (find_long_path(Path("/" + "x" * most)) or "")
