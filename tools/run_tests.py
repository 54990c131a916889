"""Runs the tests: `make test`. Up to ten that failed run once more, alone, when all others are done.

One test of thousands that is unsteady on a busy machine must not fail the whole run. Those that pass at the
second time are named under `flaky:` in the last lines: they are the next thing to mend.
"""

import subprocess
import sys

import pytest

MOST_AGAIN = 10


class Outcome:
    """What a run has to say about its failures; a plugin of pytest."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        """The ids of the tests that failed, in their order."""
        self.is_final = False
        """Whether something went wrong that a second try cannot make good."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # xdist writes the group of a test into its id, behind the parameters.
            head, bracket, tail = report.nodeid.rpartition("]")
            self.failed[head + bracket + tail.partition("@")[0]] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_final |= report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """A process of xdist has ended, by an error or because there is nothing left to do."""
        self.is_final |= error is not None


def main(arguments: list[str]) -> int:
    """Runs pytest with these arguments; the exit status of the run as a whole."""
    outcome = Outcome()
    status = pytest.main(arguments, plugins=[outcome])
    failed = list(outcome.failed)
    if status != pytest.ExitCode.TESTS_FAILED or outcome.is_final or not 0 < len(failed) <= MOST_AGAIN:
        return status

    print(f"\nonce more, alone: {len(failed)} failed", flush=True)
    # A process of its own: nothing of the first run is left in it.
    again = subprocess.run([sys.executable, "-m", "pytest", *failed], check=False)
    if again.returncode == 0:
        print("flaky:", *failed, sep="\n  ", flush=True)
    return again.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
