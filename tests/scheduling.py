"""Which test process gets which tests.

Tests with browsers keep a processor busy, and those with a Redis wait for most of their time. So if there are
more processes than processors, these take only what waits, as long as there is some.
"""

import os

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

BUSY = ("tests/acceptance/", "tests/process/")


class Scheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types.
    """Hands out groups of tests as `--dist loadgroup` does, but chooses the next by its kind."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        takes_busy = self.nodes.index(node) < (os.cpu_count() or 1)
        fitting = (scope for scope, tests in self.workqueue.items() if _is_busy(tests) == takes_busy)
        scope = next(fitting, None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def _is_busy(tests: dict[str, bool]) -> bool:
    return next(iter(tests)).startswith(BUSY)
