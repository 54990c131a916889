"""The metrics of Playwright's workers and connections."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from remuda.fleet.metrics import Metric, MetricKind, Numbers, ReadNumbers, Sample, by, histogram
from remuda.fleet.room import Surroundings
from remuda.keyspace import fleet, playwright
from remuda.keyspace.key import Name
from remuda.playwright.model import BEYOND, WAIT_BUCKETS, ServedBrowser
from remuda.playwright.view import STATUSES, WaitingView, WorkerView, read_waiting, read_workers


async def _workers(on: Surroundings) -> list[WorkerView]:
    return await read_workers(on.store)


def _workers_by_status(found: Sequence[WorkerView]) -> Iterator[Sample]:
    counted = Counter((each.browser, each.status) for each in found)
    for browser in ServedBrowser:
        for status in STATUSES:
            yield Sample(counted[browser, status], {"browser": browser, "status": status})


def _connections(found: Sequence[WorkerView]) -> list[Sample]:
    return by(
        "browser",
        {browser: sum(each.active for each in found if each.browser == browser) for browser in ServedBrowser},
    )


async def _clients(on: Surroundings) -> list[WaitingView]:
    return await read_waiting(on.store, limited_to=None)


def _waits(tell: Callable[[Sequence[float]], float]) -> Callable[[Sequence[WaitingView]], list[Sample]]:
    """What there is to tell of the waits for each browser."""

    def find(found: Sequence[WaitingView]) -> list[Sample]:
        waits = {
            browser: [each.waited for each in found if each.browser == browser] for browser in ServedBrowser
        }
        return by("browser", {browser: tell(those) for browser, those in waits.items()})

    return find


def _finished_waits(found: Mapping[Name, Numbers]) -> Iterator[Sample]:
    bounds = [*(f"{each:g}" for each in WAIT_BUCKETS), BEYOND]
    for browser in ServedBrowser:
        counted = found[playwright.PLAYWRIGHT_WAITS(browser)]
        # Redis has each wait in one bucket only; the format wants it in all that it fits in.
        counts = dict(zip(bounds, accumulate(counted[bound] for bound in bounds), strict=True))
        if not math.isnan(counts[BEYOND] + counted["sum"]):  # A histogram must not lack a bucket.
            yield from histogram(counts, counted["sum"], {"browser": browser})


def _total(field: str) -> Callable[[Mapping[Name, Numbers]], list[Sample]]:
    return lambda found: by(
        "browser", {browser: found[playwright.PLAYWRIGHT_TOTALS(browser)][field] for browser in ServedBrowser}
    )


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "remuda_playwright_workers",
        MetricKind.GAUGE,
        ("browser", "status"),
        "Playwright workers; a hindered worker has a full disk, a suspected one did not answer a gateway, "
        "a silent one is dead or disconnected",
        (
            playwright.PLAYWRIGHT_WORKERS,
            playwright.WORKER,
            playwright.PLAYWRIGHT_OBSTACLES,
            playwright.PLAYWRIGHT_SUSPECTS,
        ),
        _workers,
        _workers_by_status,
    ),
    Metric(
        "remuda_playwright_connections",
        MetricKind.GAUGE,
        ("browser",),
        "Open Playwright connections",
        (playwright.ACTIVE_CONNECTIONS,),
        _workers,
        _connections,
    ),
    Metric(
        "remuda_playwright_queue_length",
        MetricKind.GAUGE,
        ("browser",),
        "Playwright clients that wait for a place",
        (fleet.LINE_ORDER,),
        _clients,
        _waits(len),
    ),
    Metric(
        "remuda_playwright_queue_longest_wait_seconds",
        MetricKind.GAUGE,
        ("browser",),
        "Longest current waiting time in the queue",
        (fleet.LINE_ORDER,),
        _clients,
        _waits(lambda waits: max(waits, default=0)),
    ),
    Metric(
        "remuda_playwright_wait_seconds",
        MetricKind.HISTOGRAM,
        ("browser",),
        "Time from a Playwright client's request to the selection of a worker",
        (playwright.PLAYWRIGHT_WAITS,),
        ReadNumbers(tuple(playwright.PLAYWRIGHT_WAITS(browser) for browser in ServedBrowser)),
        _finished_waits,
    ),
    *(
        Metric(
            f"remuda_playwright_{field}_total",
            MetricKind.COUNTER,
            ("browser",),
            meaning[0].upper() + meaning[1:],
            (playwright.PLAYWRIGHT_TOTALS,),
            ReadNumbers(tuple(playwright.PLAYWRIGHT_TOTALS(browser) for browser in ServedBrowser)),
            _total(field),
        )
        for field, meaning in playwright.PLAYWRIGHT_TOTALS.fields.items()
    ),
)
