"""/metrics tells what each account has used, of so many accounts as monitoring can bear."""

from configs import make_config
from exposition import parse, value
from remuda.cli.rooms import ROOMS
from remuda.fleet.room import Surroundings
from remuda.keyspace.metering import USAGE_TOTALS
from remuda.metering.model import Services
from remuda.metering.push import Metering
from remuda.ops.exporter import expose
from remuda.store import Store

SERVICES = Services(service for room in ROOMS for service in room.services)
NAME = "remuda_usage_total"


async def use(metering: Metering, account: str, seconds: int) -> None:
    params = {"accountId": account, "seconds": seconds}
    await metering.push("useBrowser", params, service="grid")


async def test_usage_is_told_by_account_and_measure(store: Store) -> None:
    metering = Metering(store, services=SERVICES)
    await use(metering, "ranch", 5)
    await use(metering, "ranch", 6)
    await use(metering, "farm", 7)

    found = parse(await expose(Surroundings(store, make_config(), ROOMS)))

    for account, seconds in (("ranch", 11), ("farm", 7)):
        labels = {"service": "grid", "account": account, "measure": "browserSeconds"}
        assert value(found, NAME, **labels) == seconds


async def test_accounts_beyond_a_number_are_added_up(store: Store) -> None:
    metering = Metering(store, services=SERVICES)
    await store.hset(USAGE_TOTALS("grid"), {f"a{number} browserSeconds": 1 for number in range(900)})
    await use(metering, "ranch", 5)
    await use(metering, "farm", 7)
    await use(metering, "a3", 1)

    found = parse(await expose(Surroundings(store, make_config(), ROOMS)))

    assert len(found[NAME].samples) == 901
    assert value(found, NAME, service="grid", account="", measure="browserSeconds") == 12
    assert value(found, NAME, service="grid", account="a3", measure="browserSeconds") == 2
