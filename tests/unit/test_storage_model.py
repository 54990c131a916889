"""What an artifact is, to whom it may belong, and what must go when there is no room."""

import json
import re
from collections.abc import Collection
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.base.ids import SessionId, new_id
from remuda.fleet.ownership import Retention
from remuda.storage.model import (
    Artifact,
    ArtifactPath,
    Fill,
    Holding,
    Owner,
    StorageLimits,
    choose_evictions,
    is_name,
    parse_path,
    read_news,
    write_news,
)

SESSION = SessionId("2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77")
NOW = 1_800_000_000.0
DAY = 24 * 3600.0
ROOMY = Fill(used=0, disk_total=1 << 40, disk_free=1 << 39)


TWO_DAYS = Retention(seconds=2 * DAY)


def holding(
    *, kind: str = "session", size: int = 100, modified: float = NOW - DAY, accessed: float = 0.0
) -> Holding:
    return Holding(Owner(kind, new_id()), size, modified, accessed)


# Owners

IDENT = "3kx0uuq8yjy0dqn3bgp7rypu0"


def test_a_session_is_its_bare_id_and_others_name_their_kind() -> None:
    for owner, text in ((Owner("session", SESSION), SESSION), (Owner("job", IDENT), f"job_{IDENT}")):
        assert str(owner) == text
        assert Owner.parse(text) == owner


NO_OWNERS = [
    *("", ".", "..", "/", "_", "job", "job_", "_x", IDENT, "lost+found"),
    *(".remuda-storage", ".remuda-index.sqlite3", f".leaving-{SESSION}", f".job_{IDENT}"),
    *("job_.", "job_..", "job_.hidden", "job_../x", "job_/etc", "job_a/b", "job_a\\b", "../job_a"),
    *("job_a\0", "job_a\n", "job_a b", "job_ä", "job_\ud800", "job_a_b", "job__a", f"job_{'x' * 129}"),
    *("Job_a", "j-b_a", "job2_a", f"{'x' * 21}_a", "*_a", "job_*"),
    *(f"session_{SESSION}", f"{SESSION}_a", SESSION.upper(), f"{SESSION} ", SESSION[:-1]),
]


@pytest.mark.parametrize("text", NO_OWNERS)
def test_a_text_that_is_not_an_owners_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Owner.parse(text)
    with pytest.raises(InvalidArgument):
        parse_path(f"{text}/a.log")


@pytest.mark.parametrize(
    ("kind", "owner_id"),
    [("session", IDENT), ("session", "../.."), ("job", "../.."), ("job", ""), ("../..", "a"), ("", "a")],
)
def test_an_owner_that_could_lead_elsewhere_cannot_be_made(kind: str, owner_id: str) -> None:
    with pytest.raises(InvalidArgument):
        Owner(kind, owner_id)


parts_of_names = st.text(st.sampled_from("ab0_-./\\\0 \nÄ%~"), max_size=8)


@given(st.one_of(st.text(), parts_of_names, parts_of_names.map(lambda text: f"job_{text}")))
def test_whatever_is_an_owner_is_one_plain_directory_and_has_one_name(text: str) -> None:
    try:
        owner = Owner.parse(text)
    except InvalidArgument:
        return

    assert str(owner) == text
    assert PurePosixPath("/storage", text).parent == PurePosixPath("/storage")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text)


# Paths


@pytest.mark.parametrize("name", ["video.m4s", "a b.log", "Übung.txt", "x" * 255, "a..b", "~"])
def test_an_ordinary_name_is_one(name: str) -> None:
    for owner in (Owner("session", SESSION), Owner("job", IDENT)):
        assert parse_path(f"{owner}/{name}") == ArtifactPath(owner, name)


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
        parse_path(path)


@given(st.text())
def test_no_name_reaches_out_of_its_directory(text: str) -> None:
    if is_name(text):
        assert "/" not in text
        assert "\0" not in text
        assert not text.startswith(".")


# News


def test_news_is_read_as_it_was_written() -> None:
    artifact = Artifact(ArtifactPath(Owner("session", SESSION), "video.m4s"), 12345, NOW - 10, NOW)

    assert read_news(write_news(artifact), now=NOW) == artifact


def test_news_has_the_documented_fields() -> None:
    written = json.loads(write_news(Artifact(ArtifactPath(Owner("session", SESSION), "a.log"), 5, 0.0, 1.0)))

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


def evict(
    *holdings: Holding,
    fill: Fill = ROOMY,
    limits: StorageLimits | None = None,
    sessions: Retention | None = None,
    jobs: Retention | None = None,
    active: Collection[Owner] = (),
) -> list[Owner]:
    """Those that go of a storage that keeps sessions, and jobs if there is a rule for them."""
    rules = {"session": sessions or Retention()} | ({} if jobs is None else {"job": jobs})
    limits = limits or StorageLimits()
    return choose_evictions(holdings, fill, limits, retentions=rules, active=active, now=NOW)


def test_an_empty_storage_evicts_nothing() -> None:
    assert evict(fill=Fill(0, 0, 0), limits=StorageLimits(size=0), sessions=Retention(seconds=0.0)) == []


def test_within_its_limits_nothing_goes() -> None:
    fill = Fill(100, 1 << 40, 1 << 39)

    assert evict(holding(), fill=fill, limits=StorageLimits(size=1000), sessions=TWO_DAYS) == []


def test_what_is_too_old_goes_even_if_it_was_read_today() -> None:
    old = holding(modified=NOW - 3 * DAY, accessed=NOW)
    young = holding(modified=NOW - DAY)

    assert evict(young, old, sessions=TWO_DAYS) == [old.owner]


def test_over_the_limit_the_least_recently_used_go_down_to_the_low_water_mark() -> None:
    holdings = [holding(accessed=NOW - age * 1000) for age in range(11)]
    fill = Fill(used=1100, disk_total=1 << 40, disk_free=1 << 39)

    chosen = evict(*holdings, fill=fill, limits=StorageLimits(size=1000, low_water=0.8))

    assert chosen == [holdings[10].owner, holdings[9].owner, holdings[8].owner]


def test_at_the_limit_nothing_goes() -> None:
    fill = Fill(used=1000, disk_total=1 << 40, disk_free=1 << 39)

    assert evict(holding(size=1000), fill=fill, limits=StorageLimits(size=1000)) == []


def test_active_sessions_and_fresh_writes_are_spared() -> None:
    active, fresh, idle = holding(), holding(modified=NOW - 10), holding(accessed=NOW)
    fill = Fill(used=300, disk_total=1 << 40, disk_free=1 << 39)

    chosen = evict(
        *(active, fresh, idle),
        fill=fill,
        limits=StorageLimits(size=0, quiet=300.0),
        sessions=Retention(seconds=1.0),
        active={active.owner},
    )

    assert chosen == [idle.owner]


def test_a_full_disk_makes_room_whatever_the_limit() -> None:
    first, second = holding(size=60, modified=NOW - 2 * DAY), holding(size=60)
    fill = Fill(used=120, disk_total=1000, disk_free=50)

    assert evict(second, first, fill=fill) == [first.owner]


def test_what_frees_nothing_is_kept() -> None:
    empty, large = holding(size=0, modified=NOW - 9 * DAY), holding(size=500)
    fill = Fill(used=500, disk_total=1 << 40, disk_free=1 << 39)

    assert evict(empty, large, fill=fill, limits=StorageLimits(size=100)) == [large.owner]


def test_one_run_evicts_only_so_many() -> None:
    holdings = [holding(modified=NOW - (10 + number) * DAY) for number in range(10)]

    chosen = evict(*holdings, limits=StorageLimits(at_once=3), sessions=Retention(seconds=DAY))

    assert chosen == [holdings[number].owner for number in (9, 8, 7)]


def test_each_kind_of_owner_is_kept_for_a_time_of_its_own() -> None:
    session, job, ancient_job = (
        holding(modified=NOW - 40 * DAY),
        holding(kind="job", modified=NOW - 40 * DAY),
        holding(kind="job", modified=NOW - 400 * DAY),
    )
    month = Retention(seconds=30 * DAY)

    assert evict(session, job, ancient_job, sessions=month, jobs=Retention(seconds=365 * DAY)) == [
        ancient_job.owner,
        session.owner,
    ]
    assert evict(session, job, ancient_job, sessions=month, jobs=Retention()) == [session.owner]


def test_lower_ranks_make_room_first_however_recently_they_were_used() -> None:
    job = holding(kind="job", size=50, modified=NOW - 40 * DAY)
    sessions = [holding(size=50, accessed=NOW - age) for age in (1, 2)]
    limits = StorageLimits(size=100, low_water=1.0)
    jobs = Retention(eviction_rank=1)

    assert evict(job, *sessions, fill=fill_of(150), limits=limits, jobs=jobs) == [sessions[1].owner]
    assert evict(job, *sessions, fill=fill_of(250), limits=limits, jobs=jobs) == [
        *(sessions[1].owner, sessions[0].owner),
        job.owner,
    ]


def test_a_kind_without_a_rank_never_makes_room_but_still_gets_old() -> None:
    job, ancient = holding(kind="job"), holding(kind="job", modified=NOW - 400 * DAY)
    jobs = Retention(seconds=365 * DAY, eviction_rank=None)

    assert evict(job, ancient, fill=fill_of(200), limits=StorageLimits(size=0), jobs=jobs) == [ancient.owner]


def test_owners_of_an_unknown_kind_are_spared() -> None:
    job = holding(kind="job", modified=NOW - 4000 * DAY)

    assert evict(job, fill=fill_of(100), limits=StorageLimits(size=0), sessions=Retention(seconds=0)) == []


def fill_of(used: int) -> Fill:
    return Fill(used, disk_total=1 << 40, disk_free=1 << 39)


ages = st.floats(min_value=0, max_value=100 * DAY)
holdings_of = st.lists(
    st.builds(
        lambda kind, size, modified, accessed: Holding(
            Owner(kind, new_id()), size, NOW - modified, NOW - accessed
        ),
        st.sampled_from(["session", "job"]),
        st.integers(0, 1000),
        ages,
        ages,
    ),
    max_size=30,
)


@given(holdings_of, st.integers(0, 5000), ages, ages)
def test_after_an_unbounded_run_everything_fits_or_all_that_may_go_is_gone(
    holdings: list[Holding], size: int, session_age: float, job_age: float
) -> None:
    limits = StorageLimits(size=size, at_once=1000)
    kept = {"session": session_age, "job": job_age}
    active = {each.owner for each in holdings[::5]}

    chosen = evict(
        *holdings,
        fill=fill_of(sum(each.size for each in holdings)),
        limits=limits,
        sessions=Retention(seconds=session_age),
        jobs=Retention(seconds=job_age, eviction_rank=1),
        active=active,
    )

    assert len(chosen) == len(set(chosen))
    assert not active & set(chosen)
    left = [each for each in holdings if each.owner not in chosen]
    movable = [each for each in left if each.owner not in active and NOW - each.modified >= limits.quiet]
    assert all(NOW - each.modified <= kept[each.owner.kind] for each in movable)
    assert sum(each.size for each in left) <= size or all(each.size == 0 for each in movable)
