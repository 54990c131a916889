"""What `make test` makes of failures: up to ten tests run once more, and must pass then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import run_tests

# A test that passes whenever it is not the first time, as one does that is unsteady on a busy machine.
UNSTEADY = """
import pathlib
import pytest

def once_only(name):
    first = pathlib.Path(name)
    if not first.exists():
        first.touch()
        raise AssertionError("unsteady")
"""


def run(project: Path, tests: str) -> tuple[int, str]:
    """The exit status of a run of these tests in one process of xdist, and what it prints."""
    (project / "test_it.py").write_text(UNSTEADY + tests)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ended = subprocess.run(
        [sys.executable, run_tests.__file__, "-n1", "--dist=loadgroup"],
        cwd=project,
        # The plugins of the environment take a second to load.
        env={**environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_a_run_is_green_and_names_the_tests_that_passed_only_at_the_second_time(tmp_path: Path) -> None:
    tests = """
def test_steady(): pass

@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("name", ["one[@]", "two"])
def test_unsteady(name): once_only(name)
"""

    status, output = run(tmp_path, tests)

    assert status == 0, output
    assert output.endswith(
        "flaky:\n  test_it.py::test_unsteady[one[@]]\n  test_it.py::test_unsteady[two]\n"
    ), output
    # Tests that passed do not run again.
    assert output.count("2 passed") == 1


@pytest.mark.parametrize(
    ("tests", "runs_again"),
    [
        pytest.param(
            "def test_unsteady(): once_only('x')\ndef test_wrong(): assert False", True, id="fails again"
        ),
        pytest.param(
            "@pytest.mark.parametrize('n', range(11))\ndef test_unsteady(n): once_only(str(n))",
            False,
            id="more than ten failures",
        ),
        pytest.param(
            "import os\ndef test_dies():\n  try: once_only('x')\n  except AssertionError: os._exit(3)",
            False,
            id="a test process died",
        ),
        pytest.param("once_only('x')\ndef test_fine(): pass", False, id="a collection error"),
    ],
)
def test_a_run_is_red_by(tmp_path: Path, tests: str, runs_again: bool) -> None:
    status, output = run(tmp_path, tests)

    assert status != 0, output
    assert ("once more, alone" in output) is runs_again
    assert "flaky:" not in output
