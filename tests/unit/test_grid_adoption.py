"""Finding a node again: by its pid and its start, so that whoever has its pid now is not taken for it."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remuda.base.ids import SessionId
from remuda.base.processes import start_of
from remuda.grid.orchestrator.nodes import NodeProcess

SESSION = SessionId("0" * 8 + "-0000-0000-0000-" + "0" * 12)


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def node_of(process: "subprocess.Popen[bytes]") -> NodeProcess:
    return NodeProcess(process.pid, os.pidfd_open(process.pid))


async def test_a_node_is_found_by_what_was_noted_and_can_be_ended(
    process: "subprocess.Popen[bytes]",
) -> None:
    found = NodeProcess.find(SESSION, node_of(process).noted)
    assert found is not None
    assert (found.pid, found.session) == (process.pid, SESSION)

    process.kill()
    await found.watch()

    assert found.gone.is_set()


def test_a_node_that_is_gone_is_not_found(process: "subprocess.Popen[bytes]") -> None:
    noted = node_of(process).noted
    process.kill()
    process.wait()

    assert NodeProcess.find(SESSION, noted) is None
    assert start_of(process.pid) is None


def test_whoever_has_its_pid_now_is_not_taken_for_it(process: "subprocess.Popen[bytes]") -> None:
    pid, _, start = node_of(process).noted.partition(" ")

    assert NodeProcess.find(SESSION, f"{pid} {int(start) - 1}") is None


@pytest.mark.parametrize("noted", ["", "x", "-1 0", "1", "99999999999 1"])
def test_a_note_that_makes_no_sense_finds_nobody(noted: str) -> None:
    assert NodeProcess.find(SESSION, noted) is None
