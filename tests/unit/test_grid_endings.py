"""How the end of a session is told."""

import pytest

from remuda.base.processes import how_ended
from remuda.grid.node.ending import Ending, browser_ending, driver_ending


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "has ended"),
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-40, "was killed by signal 40"),
    ],
)
def test_an_exit_status_is_told_in_words(status: int | None, words: str) -> None:
    assert how_ended(status) == words


def test_a_browser_that_was_closed_is_no_fault() -> None:
    assert browser_ending(0) == Ending("CLOSED", "The browser was closed")


@pytest.mark.parametrize("status", [None, 1, -9])
def test_a_browser_that_ends_otherwise_is_one(status: int | None) -> None:
    ending = browser_ending(status)

    assert ending == Ending("DFAILURE", f"The browser {how_ended(status)}", is_fault=True)


def test_a_driver_that_ended_by_itself_has_the_last_word() -> None:
    assert driver_ending(1, "out of order").message == "The driver ended with status 1: out of order"
    assert driver_ending(1, "").message == "The driver ended with status 1"


def test_what_a_driver_said_before_it_was_killed_is_not_why() -> None:
    assert driver_ending(-9, "started successfully").message == "The driver was killed by SIGKILL"


def test_the_log_says_nothing_where_there_is_nothing_to_say() -> None:
    assert Ending("CLOSED").meta == {}
    assert Ending("DFAILURE", "no", error="invalid argument").meta == {
        "message": "no",
        "error": "invalid argument",
    }
