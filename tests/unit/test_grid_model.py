"""The life of a session: which state follows which, and how a status tells the state."""

import itertools

import pytest

from remuda.grid.model import LEGAL_ORIGINS, STARTUP_BUCKETS, State, state_of

ORDER = [State.QUEUED, State.PENDING, State.ALIVE, State.TERMINATED]


def test_a_session_only_ever_moves_on() -> None:
    for state, origins in LEGAL_ORIGINS.items():
        assert all(ORDER.index(origin) < ORDER.index(state) for origin in origins)


def test_every_state_but_the_first_can_be_reached_from_the_one_before_it() -> None:
    for before, state in itertools.pairwise(ORDER):
        assert before in LEGAL_ORIGINS[state]


def test_a_session_may_end_at_any_time_but_only_once() -> None:
    assert set(LEGAL_ORIGINS[State.TERMINATED]) == set(ORDER) - {State.TERMINATED}


def test_no_step_is_left_out_on_the_way_to_a_browser() -> None:
    assert LEGAL_ORIGINS[State.QUEUED] == ()
    assert LEGAL_ORIGINS[State.PENDING] == (State.QUEUED,)
    assert LEGAL_ORIGINS[State.ALIVE] == (State.PENDING,)


def test_stamps_are_named_as_the_documents_say() -> None:
    assert [state.stamp for state in ORDER] == ["queuedAt", "pendingAt", "aliveAt", "terminatedAt"]


@pytest.mark.parametrize(
    ("stamps", "state"),
    [
        ([], None),
        (["queuedAt"], State.QUEUED),
        (["pendingAt", "queuedAt"], State.PENDING),
        (["queuedAt", "pendingAt", "aliveAt"], State.ALIVE),
        (["terminatedAt", "queuedAt"], State.TERMINATED),
        (["queuedAt", "pendingAt", "aliveAt", "terminatedAt"], State.TERMINATED),
    ],
)
def test_the_latest_state_present_is_the_state(stamps: list[str], state: State | None) -> None:
    assert state_of(dict.fromkeys(stamps, "2026-01-02T03:04:05.678Z")) == state


def test_the_histograms_buckets_grow() -> None:
    assert list(STARTUP_BUCKETS) == sorted(set(STARTUP_BUCKETS))
