"""In which lines a request waits: those of the orchestrators that can serve it."""

from typing import Any

import pytest

from remuda.base.ids import OrchestratorId
from remuda.grid.capabilities import Offer
from remuda.grid.queue import line_of, lines_for

CHROME = Offer("chrome", "156.0.1", "linux")
FIREFOX = Offer("firefox", "145.0", "linux")
BOTH_1, BOTH_2, ONE = OrchestratorId("both-1"), OrchestratorId("both-2"), OrchestratorId("one")
OFFERS = {BOTH_1: [CHROME, FIREFOX], BOTH_2: [CHROME, FIREFOX], ONE: [CHROME]}
OF_BOTH, OF_ONE = line_of([CHROME, FIREFOX]), line_of([CHROME])


@pytest.mark.parametrize(
    "wanted",
    [
        {"browserName": "chrome"},
        {"browserName": "Chromium", "browserVersion": "156"},
        {"browserName": "chrome", "browserVersion": "156.0", "se:name": "mine"},
        {"browserVersion": "156.0.1", "platformName": "ANY"},
        {"platformName": "linux", "se:downloadsEnabled": True},
        {},
    ],
)
def test_however_a_wish_is_written_it_waits_where_it_can_be_served(wanted: dict[str, Any]) -> None:
    assert lines_for([wanted], OFFERS) == {OF_BOTH: [BOTH_1, BOTH_2], OF_ONE: [ONE]}


def test_nothing_waits_for_what_cannot_serve_it() -> None:
    assert lines_for([{"browserName": "firefox"}], OFFERS) == {OF_BOTH: [BOTH_1, BOTH_2]}
    assert lines_for([{"browserName": "safari"}, {"browserName": "chrome"}], {ONE: [CHROME]}) == {
        OF_ONE: [ONE]
    }
    assert lines_for([{"browserName": "chrome", "browserVersion": "15"}], OFFERS) == {}
    assert lines_for([{}], {}) == {}


def test_a_line_is_told_by_what_is_offered_in_any_order() -> None:
    assert line_of([CHROME, FIREFOX]) == line_of([FIREFOX, CHROME])
    assert len({OF_BOTH, OF_ONE, line_of([FIREFOX]), line_of([])}) == 4
