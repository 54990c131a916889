"""Who is dead, and what is old: the decisions of the sweeps, without Redis."""

from typing import Any

import pytest

from remuda.base import clock
from remuda.base.errors import Broken
from remuda.base.ids import SlotId
from remuda.fleet.sweep import Patience
from remuda.grid.model import State
from remuda.grid.sweeps import owners
from remuda.grid.sweeps.model import PATIENCE, Vitals, code_of_silence, is_old, is_silent
from remuda.keyspace import grid
from remuda.keyspace.catalog import CATALOG
from remuda.keyspace.key import Key

STAMP = "2026-01-02T03:04:05.678Z"
SLOT = SlotId("o1/1")


def vitals(state: State | None, **beats: Any) -> Vitals:
    reached = list(State)[: list(State).index(state) + 1] if state else []
    return Vitals({each.stamp: STAMP for each in reached}, **beats)


@pytest.mark.parametrize("state", [State.QUEUED, State.PENDING])
def test_until_a_session_is_alive_its_manager_speaks_for_it(state: State) -> None:
    assert not is_silent(vitals(state, does_manager_beat=True))
    assert is_silent(vitals(state, does_node_beat=True))
    assert is_silent(vitals(state))


def test_then_its_node_does() -> None:
    assert not is_silent(vitals(State.ALIVE, does_node_beat=True))
    assert is_silent(vitals(State.ALIVE, does_manager_beat=True))
    assert is_silent(vitals(State.ALIVE))


@pytest.mark.parametrize("state", [State.TERMINATED, None])
def test_who_has_ended_or_never_was_is_not_silent(state: State | None) -> None:
    assert not is_silent(vitals(state))


@pytest.mark.parametrize(
    ("state", "slot", "code"),
    [
        (State.QUEUED, None, "QTIMEOUT"),
        (State.QUEUED, SLOT, "OTIMEOUT"),
        (State.PENDING, SLOT, "NTIMEOUT"),
        (State.ALIVE, SLOT, "TERM"),
    ],
)
def test_the_code_tells_the_step_that_a_session_had_reached(
    state: State, slot: SlotId | None, code: str
) -> None:
    assert code_of_silence(vitals(state, slot=slot)) == code


def test_there_is_no_code_for_a_second_end() -> None:
    with pytest.raises(Broken):
        code_of_silence(vitals(State.TERMINATED))


def test_a_session_is_old_when_its_retention_is_over() -> None:
    ended_at = clock.parse_rfc3339(STAMP)

    assert not is_old(vitals(State.TERMINATED), now=ended_at + 59, retention=60)
    assert is_old(vitals(State.TERMINATED), now=ended_at + 60, retention=60)
    assert not is_old(vitals(State.ALIVE), now=ended_at + 60, retention=60)


def test_a_stamp_in_another_form_of_the_standard_is_understood() -> None:
    foreign = Vitals({State.TERMINATED.stamp: "2026-01-02T04:04:05+01:00"})

    assert is_old(foreign, now=clock.parse_rfc3339(STAMP) + 60, retention=60)


@pytest.mark.parametrize("stamp", ["", "yesterday", "2026-01-02T03:04:05"])
def test_a_stamp_that_is_none_says_so(stamp: str) -> None:
    with pytest.raises(ValueError):
        is_old(Vitals({State.TERMINATED.stamp: stamp}), now=0, retention=0)


def test_only_who_stays_silent_is_dead() -> None:
    patience = Patience(PATIENCE)
    assert not patience.is_over("a", now=0)
    patience.end_round()

    assert not patience.is_over("a", now=PATIENCE - 1)
    assert not patience.is_over("b", now=PATIENCE - 1)
    patience.end_round()

    assert patience.is_over("a", now=PATIENCE)
    assert not patience.is_over("b", now=PATIENCE)


def test_who_was_heard_in_between_is_forgiven() -> None:
    patience = Patience(PATIENCE)
    patience.is_over("a", now=0)
    patience.end_round()
    patience.end_round()

    assert not patience.is_over("a", now=PATIENCE)


def test_patience_outlasts_every_pause_between_two_beats() -> None:
    beats = (grid.SESSION_HEARTBEAT_MANAGER, grid.SESSION_HEARTBEAT_NODE, grid.ORCHESTRATOR_HEARTBEAT)

    assert all((key.lifetime.expires or 0) / 3 < PATIENCE for key in (*beats, grid.MANAGER_HEARTBEAT))


@pytest.mark.parametrize(
    ("placeholder", "keys"),
    [("session", grid.SESSION_KEYS), ("orchestrator", grid.ORCHESTRATOR_KEYS)],
)
def test_what_a_purge_deletes_is_all_there_is(placeholder: str, keys: tuple[Key[Any], ...]) -> None:
    declared = [key for key in CATALOG["grid"] if placeholder in key.placeholders]

    assert declared == list(keys)


def test_the_owner_of_a_key_is_read_from_its_name() -> None:
    session = "0" * 8 + "-0000-0000-0000-" + "0" * 12
    names = [
        grid.SESSION_LOG(session),
        grid.SESSION_STATUS(session),
        grid.ORCHESTRATOR_SLOTS("o1"),
        grid.ORCHESTRATOR_HOLDERS("o2"),
        grid.ORCHESTRATORS(),
        "session:me:log",
        "someone:elses",
    ]

    assert owners(names, grid.SESSION_KEYS) == [session]
    assert owners(names, grid.ORCHESTRATOR_KEYS) == ["o1", "o2"]
