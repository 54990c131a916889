"""Settings: read at the moment of use, with a default for what is missing or makes no sense."""

import pytest

from remuda.base.errors import InvalidArgument
from remuda.fleet.settings import Settings
from remuda.keyspace.grid import TIMEOUTS
from remuda.store import Store
from remuda.store.census import take_census

DEFAULTS = {"queue": 600.0, "nodeStartup": 12.5, "sessionTermination": 1234567.0}


@pytest.fixture
def settings(any_store: Store) -> Settings:
    return Settings(any_store, TIMEOUTS(), defaults=DEFAULTS)


async def test_what_nobody_has_set_has_its_default(settings: Settings) -> None:
    assert await settings.read() == DEFAULTS


async def test_the_defaults_are_written_for_an_operator_to_find(settings: Settings, any_store: Store) -> None:
    await settings.write_defaults()

    assert await any_store.hgetall(TIMEOUTS()) == {
        "queue": "600",
        "nodeStartup": "12.5",
        "sessionTermination": "1234567",
    }
    assert await take_census(any_store) == []


async def test_writing_the_defaults_overwrites_no_choice(settings: Settings, any_store: Store) -> None:
    await any_store.hset(TIMEOUTS(), {"queue": "5"})

    await settings.write_defaults()
    await settings.write_defaults()

    assert await settings.read() == DEFAULTS | {"queue": 5.0}


async def test_a_change_is_seen_by_everybody_at_once(settings: Settings, any_url: str) -> None:
    async with Store(any_url) as other:
        elsewhere = Settings(other, TIMEOUTS(), defaults=DEFAULTS)

        await settings.change(queue=0.25, nodeStartup=86400 * 365)

        assert await elsewhere.read() == DEFAULTS | {"queue": 0.25, "nodeStartup": 31536000.0}


async def test_a_change_by_hand_is_seen(settings: Settings, any_store: Store) -> None:
    await any_store.send("HSET", TIMEOUTS(), "queue", "7")

    assert (await settings.read())["queue"] == 7


@pytest.mark.parametrize("bad", ["", "soon", "-1", "nan", "inf", "1e999", "5s"])
async def test_a_value_that_makes_no_sense_is_reported_and_the_default_taken(
    settings: Settings, any_store: Store, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    await any_store.hset(TIMEOUTS(), {"queue": bad, "nodeStartup": "3"})

    assert await settings.read() == DEFAULTS | {"nodeStartup": 3.0}

    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "setting ignored")
    assert vars(record)["remuda_fields"] == {"key": "timeouts", "name": "queue", "value": bad, "using": 600.0}


async def test_a_name_that_nobody_knows_is_left_alone(settings: Settings, any_store: Store) -> None:
    await any_store.hset(TIMEOUTS(), {"unheardOf": "1"})

    assert await settings.read() == DEFAULTS


async def test_an_unknown_setting_is_refused(settings: Settings, any_store: Store) -> None:
    with pytest.raises(InvalidArgument, match="has no setting 'quue': queue, nodeStartup"):
        await settings.change(queue=1, quue=5)

    assert await any_store.hgetall(TIMEOUTS()) == {}


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
async def test_a_number_that_makes_no_sense_is_refused(settings: Settings, bad: float) -> None:
    with pytest.raises(InvalidArgument, match="queue must be a number of at least 0"):
        await settings.change(queue=bad)

    assert await settings.read() == DEFAULTS


async def test_changing_nothing_is_no_error(settings: Settings) -> None:
    await settings.change()

    assert await settings.read() == DEFAULTS
