"""Python's share of a process's start and end."""

import gc
import subprocess
import sys

from remuda.base.interpreter import without_collector


def test_a_process_that_leaves_has_printed_everything() -> None:
    code = "from remuda.base.interpreter import *; print('out'); sys.stderr.write('err'); leave()"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "out\n", "err")


def test_the_collector_is_off_only_meanwhile() -> None:
    with without_collector():
        assert not gc.isenabled()

    assert gc.isenabled()
