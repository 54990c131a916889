"""What is read of the herd for /metrics, and how samples are found in it. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from remuda.grid.model import STARTUP_BUCKETS, State
from remuda.grid.view import OrchestratorView
from remuda.keyspace import metrics
from remuda.keyspace.key import HashName, Key, Name
from remuda.keyspace.log_codes import LEVELS, LOG_CODES
from remuda.keyspace.playwright import PLAYWRIGHT_TOTALS, PLAYWRIGHT_WAITS
from remuda.playwright.model import BEYOND, WAIT_BUCKETS, Browser
from remuda.playwright.view import STATUSES, WaitingView, WorkerView
from remuda.store.memory import Memory

METHODS = tuple(metrics.METRICS_HTTP_REQUESTS.parts["method"].split("|"))
STATES = tuple(state for state in State if state is not State.TERMINATED)
"""The states of a session that has not ended."""

COUNTERS: tuple[HashName, ...] = (
    *(metrics.METRICS_HTTP_REQUESTS(method) for method in METHODS),
    metrics.METRICS_HTTP_BYTES(),
    *(metrics.METRICS_SESSIONS_LOG(level) for level in LEVELS),
    metrics.METRICS_SESSIONS_TOTAL(),
    metrics.METRICS_SESSIONS_DURATION(),
    metrics.METRICS_STARTUP_BUCKETS(),
    metrics.METRICS_SLOTS_RECLAIMED(),
    metrics.METRICS_STORAGE_TOTAL(),
    metrics.METRICS_STORAGE_USED(),
    *(PLAYWRIGHT_TOTALS(browser) for browser in Browser),
    *(PLAYWRIGHT_WAITS(browser) for browser in Browser),
)
"""The hashes that are read as they are, field by field."""
NUMBERS = (metrics.METRICS_STARTUP_SUM(),)
"""The strings that are a number."""

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Sample:
    """One line of the exposition; the suffix is a histogram's `_bucket`, `_sum` or `_count`."""

    value: float
    labels: Labels
    suffix: str = ""


@dataclass(frozen=True)
class Reading:
    """The herd at one moment. What is None could not be read."""

    numbers: Mapping[Name, Mapping[str, float]]
    """The fields of each key that could be read; one that cannot be right is nan, and so not told of."""
    active: int | None = None
    terminated: int | None = None
    memory: Memory | None = None
    """What Redis takes."""
    orchestrators: Sequence[OrchestratorView] | None = None
    roles: Mapping[str, int] | None = None
    sessions: Mapping[State, int] | None = None
    waits: Sequence[float] | None = None
    """For how long each session has been waiting for a slot."""
    news: Mapping[str, int] | None = None
    """Files that the index of each storage does not know yet."""
    workers: Sequence[WorkerView] | None = None
    clients: Sequence[WaitingView] | None = None
    """Playwright clients that wait for a place."""

    def field(self, key: Name, name: str = "") -> float:
        """A number of a key; what nobody has counted yet is 0."""
        # Nothing rather than 0 for what cannot be read: a counter that falls looks like a restart.
        return self.numbers[key].get(name, 0) if key in self.numbers else math.nan


def requests(reading: Reading) -> Iterator[Sample]:
    for method in METHODS:
        counted = reading.numbers.get(metrics.METRICS_HTTP_REQUESTS(method), {})
        for code, value in sorted(counted.items()):
            yield Sample(value, {"method": method, "code": code})


def log_entries(reading: Reading) -> Iterator[Sample]:
    for level in LEVELS:
        key = metrics.METRICS_SESSIONS_LOG(level)
        declared = [entry.code for entry in LOG_CODES if entry.level == level]
        for code in dict.fromkeys([*declared, *reading.numbers.get(key, {})]):
            yield Sample(reading.field(key, code), {"level": level, "code": code})


def startups(reading: Reading) -> Iterator[Sample]:
    buckets = metrics.METRICS_STARTUP_BUCKETS()
    for bucket in STARTUP_BUCKETS:
        yield Sample(reading.field(buckets, str(bucket)), {"le": str(bucket)}, "_bucket")
    # The format wants the last bucket and the count to be the same number. The key `count` may be one ahead,
    # since a start-up can be added between the two reads.
    count = reading.field(buckets, "+Inf")
    yield Sample(count, {"le": "+Inf"}, "_bucket")
    yield Sample(reading.field(metrics.METRICS_STARTUP_SUM()), {}, "_sum")
    yield Sample(count, {}, "_count")


def fields(key: Key[HashName], label: str) -> Callable[[Reading], Iterable[Sample]]:
    """One sample a declared field of a hash, the field being the label's value."""
    return lambda reading: [Sample(reading.field(key(), name), {label: name}) for name in key.fields]


def storages(key: Key[HashName]) -> Callable[[Reading], Iterable[Sample]]:
    return lambda reading: by("id", reading.numbers.get(key(), {}))


def by(label: str, values: Mapping[str, float] | None) -> list[Sample]:
    return [Sample(value, {label: each}) for each, value in (values or {}).items()]


def one(value: float | None) -> list[Sample]:
    return [] if value is None else [Sample(value, {})]


def slots(count: Callable[[OrchestratorView], int]) -> Callable[[Reading], Iterable[Sample]]:
    def samples(reading: Reading) -> list[Sample]:
        return [] if reading.orchestrators is None else one(sum(map(count, _alive(reading))))

    return samples


def slots_by_browser(count: Callable[[OrchestratorView], int]) -> Callable[[Reading], Iterable[Sample]]:
    def samples(reading: Reading) -> list[Sample]:
        slots: Counter[str] = Counter()
        for each in _alive(reading):
            # Several versions of one browser share the slots, which must not count twice.
            slots.update({name: count(each) for name in {browser.name for browser in each.browsers}})
        return by("browser", dict(sorted(slots.items())))

    return samples


def _alive(reading: Reading) -> list[OrchestratorView]:
    """Slots of the dead are no use to anybody."""
    return [each for each in reading.orchestrators or () if each.alive]


def all_slots(orchestrator: OrchestratorView) -> int:
    return len(orchestrator.slots)


def free_slots(orchestrator: OrchestratorView) -> int:
    return orchestrator.available if orchestrator.in_service else 0


def orchestrators(reading: Reading) -> list[Sample]:
    if reading.orchestrators is None:
        return []
    found, alive = len(reading.orchestrators), len(_alive(reading))
    serving = sum(each.in_service for each in reading.orchestrators)
    return by("state", {"alive": serving, "draining": alive - serving, "dead": found - alive})


def states(reading: Reading) -> list[Sample]:
    if reading.sessions is None:
        return []
    return [Sample(reading.sessions.get(state, 0), {"state": state}) for state in STATES]


def queue_length(reading: Reading) -> list[Sample]:
    return [] if reading.waits is None else one(len(reading.waits))


def longest_wait(reading: Reading) -> list[Sample]:
    return [] if reading.waits is None else one(max(reading.waits, default=0))


def workers(reading: Reading) -> Iterator[Sample]:
    if reading.workers is None:
        return
    found = Counter((each.browser, each.status) for each in reading.workers)
    for browser in Browser:
        for status in STATUSES:
            yield Sample(found[browser, status], {"browser": browser, "status": status})


def connections(reading: Reading) -> Iterator[Sample]:
    if reading.workers is None:
        return
    for browser in Browser:
        active = sum(each.active for each in reading.workers if each.browser == browser)
        yield Sample(active, {"browser": browser})


def playwright_total(what: str) -> Callable[[Reading], Iterable[Sample]]:
    return lambda reading: [
        Sample(reading.field(PLAYWRIGHT_TOTALS(browser), what), {"browser": browser}) for browser in Browser
    ]


def clients_waiting(reading: Reading) -> Iterator[Sample]:
    for browser, waits in _client_waits(reading):
        yield Sample(len(waits), {"browser": browser})


def longest_client_wait(reading: Reading) -> Iterator[Sample]:
    for browser, waits in _client_waits(reading):
        yield Sample(max(waits, default=0), {"browser": browser})


def _client_waits(reading: Reading) -> Iterator[tuple[Browser, list[float]]]:
    if reading.clients is None:
        return
    for browser in Browser:
        yield browser, [each.waited for each in reading.clients if each.browser == browser]


def finished_client_waits(reading: Reading) -> Iterator[Sample]:
    for browser in Browser:
        key, labels = PLAYWRIGHT_WAITS(browser), {"browser": browser}
        buckets = [*(f"{each:g}" for each in WAIT_BUCKETS), BEYOND]
        # Redis has each wait in one bucket only; the format wants it in all that it fits in.
        counts = list(accumulate(reading.field(key, bucket) for bucket in buckets))
        total = reading.field(key, "sum")
        if math.isnan(counts[-1] + total):
            continue  # A histogram that lacks a bucket is none.
        for bucket, count in zip(buckets, counts, strict=True):
            yield Sample(count, {**labels, "le": bucket}, "_bucket")
        yield Sample(total, labels, "_sum")
        yield Sample(counts[-1], labels, "_count")
