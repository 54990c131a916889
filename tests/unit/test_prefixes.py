"""Ids of which only the beginning was typed."""

import pytest

from remuda.base.errors import InvalidArgument
from remuda.cli.prefixes import complete

KNOWN = ["3f2a", "3f77", "9c01", "b", "b2"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("9", "9c01"), ("3f7", "3f77"), ("3f2a", "3f2a"), ("b", "b"), ("x", "x"), ("3f2ab", "3f2ab")],
)
def test_a_beginning_that_no_other_has_is_enough(typed: str, meant: str) -> None:
    assert complete(typed, KNOWN, what="jobs") == meant


def test_the_beginning_of_several_is_refused_with_their_names() -> None:
    with pytest.raises(
        InvalidArgument, match=r"'3f' is the beginning of 2 jobs, type more of it: 3f2a, 3f77$"
    ):
        complete("3f", KNOWN, what="jobs")

    many = [f"a{number}" for number in range(9)]
    with pytest.raises(InvalidArgument, match=r"of 9 jobs.* a3, a4 and 4 more$"):
        complete("a", many, what="jobs")


def test_an_empty_word_is_no_beginning() -> None:
    with pytest.raises(InvalidArgument, match=r"names none of the sessions"):
        complete("", ["3f2a"], what="sessions")
