"""What an artifact is, and which sessions must go when there is no room."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.ids import SessionId, new_id
from remuda.storage.model import (
    Artifact,
    Fill,
    Holding,
    Limits,
    Place,
    choose_evictions,
    is_name,
    parse_place,
    read_news,
    write_news,
)

SESSION = SessionId("2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77")
NOW = 1_800_000_000.0
DAY = 24 * 3600.0
ROOMY = Fill(used=0, disk_total=1 << 40, disk_free=1 << 39)


def holding(*, size: int = 100, modified: float = NOW - DAY, accessed: float = 0.0) -> Holding:
    return Holding(SessionId(new_id()), size, modified, accessed)


# Paths


@pytest.mark.parametrize("name", ["video.m4s", "a b.log", "Übung.txt", "x" * 255, "a..b", "~"])
def test_an_ordinary_name_is_one(name: str) -> None:
    assert parse_place(f"{SESSION}/{name}") == Place(SESSION, name)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        SESSION,
        f"{SESSION}/",
        f"{SESSION}/.",
        f"{SESSION}/..",
        f"{SESSION}/.hidden",
        f"{SESSION}/a/b",
        f"{SESSION}/../x",
        f"/{SESSION}/a",
        f"./{SESSION}/a",
        f"../{SESSION}/a",
        f"{SESSION.upper()}/a",
        f"{SESSION}/a\0",
        f"{SESSION}/a\n",
        f"{SESSION}/{'x' * 256}",
        f"{SESSION}/\ud800",
        ".remuda-storage",
        ".remuda-index.sqlite3",
        "/etc/passwd",
    ],
)
def test_a_path_that_can_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_place(path)


@given(st.text())
def test_no_name_reaches_out_of_its_directory(text: str) -> None:
    if is_name(text):
        assert "/" not in text
        assert "\0" not in text
        assert not text.startswith(".")


# News


def test_news_is_read_as_it_was_written() -> None:
    artifact = Artifact(Place(SESSION, "video.m4s"), 12345, NOW - 10, NOW)

    assert read_news(write_news(artifact), now=NOW) == artifact


def test_news_has_the_documented_fields() -> None:
    written = json.loads(write_news(Artifact(Place(SESSION, "a.log"), 5, 0.0, 1.0)))

    assert written == {
        "path": f"{SESSION}/a.log",
        "size": 5,
        "last_modified": "1970-01-01T00:00:00.000Z",
        "last_access": "1970-01-01T00:00:01.000Z",
    }


def news(**changes: object) -> str:
    stamp = clock.rfc3339(NOW)
    fields = {"path": f"{SESSION}/a", "size": 1, "last_modified": stamp, "last_access": stamp}
    return json.dumps(fields | changes)


def test_a_size_may_be_written_as_a_float() -> None:
    assert read_news(news(size=3.0), now=NOW).size == 3


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "nonsense",
        "null",
        "[]",
        "{}",
        "\udcff",
        news(path="../../etc/passwd"),
        news(path="/etc/passwd"),
        news(path=".remuda-storage"),
        news(path=5),
        news(size=-1),
        news(size=1e300),
        news(size="large"),
        news(size=None),
        news(last_modified="yesterday"),
        news(last_modified="2026-01-01T00:00:00"),
        news(last_modified="0001-01-01T00:00:00Z"),
        news(last_access="9999-12-31T23:59:59Z"),
        news(last_access="1969-12-31T23:59:59Z"),
    ],
)
def test_absurd_news_is_refused(entry: str) -> None:
    with pytest.raises(InvalidArgument):
        read_news(entry, now=NOW)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_news(text, now=NOW)


# Eviction


def test_an_empty_storage_evicts_nothing() -> None:
    assert choose_evictions([], Fill(0, 0, 0), Limits(size=0, age=0.0), active=(), now=NOW) == []


def test_within_its_limits_nothing_goes() -> None:
    limits = Limits(size=1000, age=2 * DAY)

    assert choose_evictions([holding()], Fill(100, 1 << 40, 1 << 39), limits, active=(), now=NOW) == []


def test_what_is_too_old_goes_even_if_it_was_read_today() -> None:
    old = holding(modified=NOW - 3 * DAY, accessed=NOW)
    young = holding(modified=NOW - DAY)

    assert choose_evictions([young, old], ROOMY, Limits(age=2 * DAY), active=(), now=NOW) == [old.session]


def test_over_the_limit_the_least_recently_used_go_down_to_the_low_water_mark() -> None:
    holdings = [holding(accessed=NOW - age * 1000) for age in range(11)]
    fill = Fill(used=1100, disk_total=1 << 40, disk_free=1 << 39)

    chosen = choose_evictions(holdings, fill, Limits(size=1000, low_water=0.8), active=(), now=NOW)

    assert chosen == [holdings[10].session, holdings[9].session, holdings[8].session]


def test_at_the_limit_nothing_goes() -> None:
    fill = Fill(used=1000, disk_total=1 << 40, disk_free=1 << 39)

    assert choose_evictions([holding(size=1000)], fill, Limits(size=1000), active=(), now=NOW) == []


def test_active_sessions_and_fresh_writes_are_spared() -> None:
    active, fresh, idle = holding(), holding(modified=NOW - 10), holding(accessed=NOW)
    limits = Limits(size=0, age=1.0, quiet=300.0)
    fill = Fill(used=300, disk_total=1 << 40, disk_free=1 << 39)

    chosen = choose_evictions([active, fresh, idle], fill, limits, active={active.session}, now=NOW)

    assert chosen == [idle.session]


def test_a_full_disk_makes_room_whatever_the_limit() -> None:
    first, second = holding(size=60, modified=NOW - 2 * DAY), holding(size=60)
    fill = Fill(used=120, disk_total=1000, disk_free=50)

    assert choose_evictions([second, first], fill, Limits(), active=(), now=NOW) == [first.session]


def test_what_frees_nothing_is_kept() -> None:
    empty, large = holding(size=0, modified=NOW - 9 * DAY), holding(size=500)
    fill = Fill(used=500, disk_total=1 << 40, disk_free=1 << 39)

    assert choose_evictions([empty, large], fill, Limits(size=100), active=(), now=NOW) == [large.session]


def test_one_run_evicts_only_so_many() -> None:
    holdings = [holding(modified=NOW - (10 + number) * DAY) for number in range(10)]

    chosen = choose_evictions(holdings, ROOMY, Limits(age=DAY, at_once=3), active=(), now=NOW)

    assert chosen == [holdings[number].session for number in (9, 8, 7)]


ages = st.floats(min_value=0, max_value=100 * DAY)
holdings_of = st.lists(
    st.builds(
        lambda size, modified, accessed: Holding(SessionId(new_id()), size, NOW - modified, NOW - accessed),
        st.integers(0, 1000),
        ages,
        ages,
    ),
    max_size=30,
)


@given(holdings_of, st.integers(0, 5000), st.floats(0, 100 * DAY))
def test_after_an_unbounded_run_everything_fits_or_all_that_may_go_is_gone(
    holdings: list[Holding], size: int, age: float
) -> None:
    limits = Limits(size=size, age=age, at_once=1000)
    active = {each.session for each in holdings[::5]}
    fill = Fill(sum(each.size for each in holdings), 1 << 40, 1 << 39)

    chosen = choose_evictions(holdings, fill, limits, active=active, now=NOW)

    assert len(chosen) == len(set(chosen))
    assert not active & set(chosen)
    left = [each for each in holdings if each.session not in chosen]
    movable = [each for each in left if each.session not in active and NOW - each.modified >= limits.quiet]
    assert all(NOW - each.modified <= age for each in movable)
    assert sum(each.size for each in left) <= size or all(each.size == 0 for each in movable)
