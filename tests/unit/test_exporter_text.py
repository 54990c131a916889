"""The declared metrics, and the text that is made from them."""

import re

import pytest

from exposition import parse, value
from remuda import __version__
from remuda.grid.model import State
from remuda.grid.view import Browser, OrchestratorView, SlotState, SlotView
from remuda.keyspace import metrics
from remuda.keyspace.key import Name
from remuda.ops.metrics import FAMILIES, Family, Kind
from remuda.ops.metrics_samples import COUNTERS, NUMBERS, Reading, Sample
from remuda.ops.metrics_text import render_exposition, render_metrics
from remuda.store.memory import Memory

NOTHING: dict[Name, dict[str, float]] = {key: {} for key in (*COUNTERS, *NUMBERS)}


def ranch(name: str = "ranch", *browsers: str, slots: int = 2, free: int = 2) -> OrchestratorView:
    states = [SlotState.AVAILABLE] * free + [SlotState.HELD] * (slots - free)
    return OrchestratorView(
        id=name,
        type="local",
        alive=True,
        platform="linux",
        browsers=[Browser(each, "1", "linux") for each in browsers or ("chrome",)],
        slots=[SlotView(f"{name}/{number}", state, None) for number, state in enumerate(states)],
        available=free,
        reclaimed=0,
        held=slots - free,
        backlog=0,
        pending=0,
    )


FULL = Reading(
    numbers=NOTHING
    | {
        metrics.METRICS_HTTP_REQUESTS("GET"): {"200": 7, "404": 1},
        metrics.METRICS_STORAGE_TOTAL(): {"barn": 1 << 40},
        metrics.METRICS_STORAGE_USED(): {"barn": 1 << 20},
    },
    active=3,
    terminated=4,
    memory=Memory(1 << 20, 1 << 30),
    orchestrators=[ranch()],
    roles={"gateway": 1},
    sessions={State.QUEUED: 1},
    waits=[1.5],
    news={"barn": 2},
    workers=[],
    clients=[],
)


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"(webgrid|remuda)_[a-z_]+[a-z]", family.name)
        assert all(re.fullmatch(r"[a-z]+", label) for label in family.labels)
        assert not family.help.endswith(".")


def test_no_family_is_declared_twice() -> None:
    names = [family.name for family in FAMILIES]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_has_the_labels_that_it_declares(family: Family) -> None:
    samples = list(family.find(FULL))

    assert samples
    for sample in samples:
        own = [label for label in sample.labels if family.kind is not Kind.HISTOGRAM or label != "le"]
        assert tuple(own) == family.labels


def test_every_counter_called_total_is_one() -> None:
    counters = {family.name for family in FAMILIES if family.kind is Kind.COUNTER}

    assert all(name.endswith("_total") for name in counters)


def test_what_nobody_has_counted_is_zero() -> None:
    families = parse(render_exposition(Reading(numbers=NOTHING)))

    assert value(families, "webgrid_session_total", stage="queued") == 0
    assert value(families, "webgrid_session_status_codes_total", level="fail", code="DFAILURE") == 0
    assert value(families, "webgrid_proxy_http_net_bytes_total", direction="in") == 0
    histogram = "webgrid_session_startup_duration_seconds"
    assert value(families, f"{histogram}_count", of=histogram) == 0


def test_what_cannot_be_read_is_left_out() -> None:
    families = parse(render_exposition(Reading(numbers=NOTHING)))

    for name in ("webgrid_sessions_active", "webgrid_slots_available", "remuda_sessions", "remuda_roles_up"):
        assert not families[name].samples


def test_a_key_that_cannot_be_read_is_not_zero() -> None:
    without = {key: each for key, each in NOTHING.items() if key != metrics.METRICS_SLOTS_RECLAIMED()}

    families = parse(render_exposition(Reading(numbers=without)))

    assert not families["webgrid_slots_reclaimed_total"].samples


def test_a_slot_for_several_browsers_counts_for_each_and_versions_count_once() -> None:
    reading = Reading(
        numbers=NOTHING,
        orchestrators=[
            ranch("ranch", "chrome", "firefox", slots=2, free=1),
            ranch("farm", "chrome", "chrome", slots=3, free=3),
        ],
    )

    families = parse(render_exposition(reading))

    assert value(families, "webgrid_slots_allocated") == 5
    assert value(families, "webgrid_slots_available") == 4
    assert value(families, "webgrid_browser_slots_total", browser="chrome") == 5
    assert value(families, "webgrid_browser_slots_available", browser="chrome") == 4
    assert value(families, "webgrid_browser_slots_total", browser="firefox") == 2
    assert value(families, "webgrid_browser_slots_available", browser="firefox") == 1


@pytest.mark.parametrize("nasty", ['a"b', "a\\b", "a\nb", 'a\\"} 1\nfake 2', "{},=", "naïve ✓", ""])
def test_a_label_says_what_it_was_given(nasty: str) -> None:
    families = parse(render_exposition(Reading(numbers=NOTHING, roles={nasty: 3})))

    assert families["remuda_roles_up"].samples == {
        ("remuda_roles_up", frozenset({("role", nasty)})): 3,
    }


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (3.0, "3"), (0.25, "0.25"), (1e16, "1" + 16 * "0"), (1e-7, "1e-07")]
)
def test_numbers_are_written_whole_and_exactly(number: float, text: str) -> None:
    family = Family("x_total", Kind.COUNTER, (), "A thing", (), lambda _reading: [Sample(number, {})])

    exposition = render_exposition(Reading(numbers={}), [family])

    assert exposition == f"# HELP x_total A thing\n# TYPE x_total counter\nx_total {text}\n"


def test_the_version_is_told() -> None:
    families = parse(render_exposition(FULL))

    assert value(families, "remuda_build_info", version=__version__) == 1


def test_the_page_has_every_family() -> None:
    page = render_metrics()

    for family in FAMILIES:
        assert f"\n| `{family.name}` | {family.kind} |" in page


# Gauges whose documented names end in _total, which promtool takes for counters; each has a twin.
TWINS = {
    "webgrid_browser_slots_total": "webgrid_browser_slots",
    "webgrid_storage_disk_bytes_total": "webgrid_storage_disk_bytes_limit",
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_named_as_promtool_wants_it(family: Family) -> None:
    is_total = family.name.endswith("_total") and family.name not in TWINS

    assert is_total == (family.kind is Kind.COUNTER)
    assert not family.name.endswith(("_bucket", "_count", "_sum", "_info")) or family.name.endswith(
        "_build_info"
    )
    assert family.help


def test_a_gauge_whose_name_promtool_refuses_has_a_twin_with_a_right_one() -> None:
    families = {family.name: family for family in FAMILIES}

    for documented, twin in TWINS.items():
        assert list(families[documented].find(FULL)) == list(families[twin].find(FULL))
        assert twin in families[documented].help
