"""The declared metrics, and the text that is made from them."""

import re
from typing import Any

import pytest

from exposition import parse, value
from remuda.cli.rooms import ROOMS
from remuda.fleet.metrics import Metric, MetricKind, Sample
from remuda.fleet.room import Surroundings
from remuda.grid.view import BrowserView, OrchestratorView, SlotState, SlotView
from remuda.ops.exporter import all_metrics, render_metric, render_page
from remuda.storage.room import StorageNumbers

METRICS = {metric.name: metric for metric in all_metrics(ROOMS)}


def orchestrator(name: str = "ranch", *browsers: str, slots: int = 2, free: int = 2) -> OrchestratorView:
    states = [SlotState.AVAILABLE] * free + [SlotState.HELD] * (slots - free)
    return OrchestratorView(
        id=name,
        type="local",
        alive=True,
        platform="linux",
        browsers=[BrowserView(each, "1", "linux") for each in browsers or ("chrome",)],
        slots=[SlotView(f"{name}/{number}", state, None) for number, state in enumerate(states)],
        available=free,
        reclaimed=0,
        held=slots - free,
        backlog=0,
        pending=0,
    )


async def _nothing(_on: Surroundings) -> None:
    """Reads nothing."""


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"(webgrid|remuda)_[a-z_]+[a-z]", metric.name)
        assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
        assert not metric.help.endswith(".")


def test_no_family_is_declared_twice() -> None:
    names = [metric.name for metric in all_metrics(ROOMS)]

    assert len(set(names)) == len(names)


def test_every_counter_called_total_is_one() -> None:
    counters = {metric.name for metric in METRICS.values() if metric.kind is MetricKind.COUNTER}

    assert all(name.endswith("_total") for name in counters)


def test_a_slot_for_several_browsers_counts_for_each_and_versions_count_once() -> None:
    found = [
        orchestrator("ranch", "chrome", "firefox", slots=2, free=1),
        orchestrator("farm", "chrome", "chrome", slots=3, free=3),
    ]

    told = [metric for name, metric in METRICS.items() if "_slots_" in name and metric.kind == "gauge"]
    families = parse("".join(render_metric(metric, metric.find(found)) for metric in told))

    assert value(families, "webgrid_slots_allocated") == 5
    assert value(families, "webgrid_slots_available") == 4
    assert value(families, "webgrid_browser_slots_total", browser="chrome") == 5
    assert value(families, "webgrid_browser_slots_available", browser="chrome") == 4
    assert value(families, "webgrid_browser_slots_total", browser="firefox") == 2
    assert value(families, "webgrid_browser_slots_available", browser="firefox") == 1


@pytest.mark.parametrize("nasty", ['a"b', "a\\b", "a\nb", 'a\\"} 1\nfake 2', "{},=", "naïve ✓", ""])
def test_a_label_says_what_it_was_given(nasty: str) -> None:
    metric = METRICS["remuda_roles_up"]

    families = parse(render_metric(metric, metric.find({nasty: 3})))

    assert families["remuda_roles_up"].samples == {
        ("remuda_roles_up", frozenset({("role", nasty)})): 3,
    }


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (3.0, "3"), (0.25, "0.25"), (1e16, "1" + 16 * "0"), (1e-7, "1e-07")]
)
def test_numbers_are_written_whole_and_exactly(number: float, text: str) -> None:
    metric = Metric("x_total", MetricKind.COUNTER, (), "A thing", (), _nothing, lambda _: ())

    exposition = render_metric(metric, [Sample(number, {})])

    assert exposition == f"# HELP x_total A thing\n# TYPE x_total counter\nx_total {text}\n"


def test_the_page_has_every_family() -> None:
    page = render_page(METRICS.values())

    for metric in METRICS.values():
        assert f"\n| `{metric.name}` | {metric.kind} |" in page


# Gauges whose documented names end in _total, which promtool takes for counters; each has a twin.
TWINS = {
    "webgrid_browser_slots_total": "webgrid_browser_slots",
    "webgrid_storage_disk_bytes_total": "webgrid_storage_disk_bytes_limit",
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_family_is_named_as_promtool_wants_it(metric: Metric[Any]) -> None:
    is_total = metric.name.endswith("_total") and metric.name not in TWINS

    assert is_total == (metric.kind is MetricKind.COUNTER)
    assert not metric.name.endswith(("_bucket", "_count", "_sum", "_info")) or metric.name.endswith(
        "_build_info"
    )
    assert metric.help


@pytest.mark.parametrize(
    ("documented", "found"),
    [
        ("webgrid_browser_slots_total", [orchestrator()]),
        ("webgrid_storage_disk_bytes_total", StorageNumbers(limits={"barn": 1 << 40}, used={}, news={})),
    ],
)
def test_a_gauge_whose_name_promtool_refuses_has_a_twin_with_a_right_one(documented: str, found: Any) -> None:
    metric, twin = METRICS[documented], METRICS[TWINS[documented]]

    assert metric.read == twin.read
    assert list(metric.find(found)) == list(twin.find(found)) != []
    assert twin.name in metric.help
