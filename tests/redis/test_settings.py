"""Settings: read at the moment of use, with a default for what is missing or makes no sense."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from remuda.fleet.settings import Seconds, Settings
from remuda.keyspace.grid import TIMEOUTS
from remuda.store import Store
from remuda.store.census import take_census


class Limits(Struct, frozen=True, rename="camel"):
    """Numbers, as the documented time-outs are."""

    queue: Seconds = 600.0
    node_startup: Seconds = 12.5
    session_termination: Seconds = 1234567.0


class Wishes(Struct, frozen=True, rename="camel"):
    """One field of each other type."""

    user_agent: str = "Remuda"
    is_quiet: bool = True
    downloaders: Annotated[int, Meta(ge=1, le=20)] = 3
    domains: tuple[str, ...] = ("a.example", "b.example")
    delays: tuple[int, ...] = ()


@pytest.fixture
def settings(any_store: Store) -> Settings[Limits]:
    return Settings(any_store, TIMEOUTS(), Limits)


@pytest.fixture
def wishes(store: Store) -> Settings[Wishes]:
    return Settings(store, TIMEOUTS(), Wishes)


async def test_what_nobody_has_set_has_its_default(settings: Settings[Limits]) -> None:
    assert await settings.read() == Limits()


async def test_the_defaults_are_written_for_an_operator_to_find(
    settings: Settings[Limits], any_store: Store
) -> None:
    await settings.write_defaults()

    assert await any_store.hgetall(TIMEOUTS()) == {
        "queue": "600",
        "nodeStartup": "12.5",
        "sessionTermination": "1234567",
    }
    assert await take_census(any_store) == []


async def test_writing_the_defaults_overwrites_no_choice(
    settings: Settings[Limits], any_store: Store
) -> None:
    await any_store.hset(TIMEOUTS(), {"queue": "5"})

    await settings.write_defaults()
    await settings.write_defaults()

    assert await settings.read() == Limits(queue=5.0)


async def test_a_change_by_hand_is_seen(settings: Settings[Limits], any_store: Store) -> None:
    await any_store.send("HSET", TIMEOUTS(), "queue", "7")

    assert (await settings.read()).queue == 7


@pytest.mark.parametrize("bad", ["", "soon", "-1", "nan", "inf", "1e999", "5s"])
async def test_a_value_that_makes_no_sense_is_reported_and_the_default_taken(
    settings: Settings[Limits], any_store: Store, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    await any_store.hset(TIMEOUTS(), {"queue": bad, "nodeStartup": "3"})

    assert await settings.read() == Limits(node_startup=3.0)

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "setting ignored")
    fields = vars(record)["remuda_fields"]
    assert fields.pop("reason")
    assert fields == {"key": "timeouts", "name": "queue", "value": bad, "using": "600"}


async def test_a_name_that_nobody_knows_is_left_alone(settings: Settings[Limits], any_store: Store) -> None:
    await any_store.hset(TIMEOUTS(), {"unheardOf": "1"})

    assert await settings.read() == Limits()


async def test_every_type_is_written_as_it_is_read(wishes: Settings[Wishes], store: Store) -> None:
    await wishes.write_defaults()

    assert await store.hgetall(TIMEOUTS()) == {
        "userAgent": "Remuda",
        "isQuiet": "true",
        "downloaders": "3",
        "domains": "a.example,b.example",
        "delays": "",
    }
    assert await wishes.read() == Wishes()


async def test_every_type_can_be_changed(wishes: Settings[Wishes], store: Store) -> None:
    written = {"userAgent": "5", "isQuiet": "false", "downloaders": " 20 ", "domains": "", "delays": "1, 2,"}

    await store.hset(TIMEOUTS(), written)

    assert await wishes.read() == Wishes(
        user_agent="5", is_quiet=False, downloaders=20, domains=(), delays=(1, 2)
    )


@pytest.mark.parametrize(
    ("name", "bad"),
    [("isQuiet", "perhaps"), ("downloaders", "21"), ("downloaders", "2.5"), ("delays", "x")],
)
async def test_what_does_not_fit_its_type_is_the_default(
    wishes: Settings[Wishes], store: Store, name: str, bad: str
) -> None:
    await store.hset(TIMEOUTS(), {name: bad})

    assert await wishes.read() == Wishes()
