"""Which orchestrators there are and what they offer. One that is not in service offers nothing."""

from remuda.base.ids import OrchestratorId
from remuda.grid.capabilities import Offer
from remuda.keyspace import grid
from remuda.store import Store

Offers = dict[OrchestratorId, list[Offer]]


async def live_offers(store: Store) -> Offers:
    """What each orchestrator in service can start."""
    ids = [OrchestratorId(each) for each in await store.smembers(grid.ORCHESTRATORS())]
    replies = [
        (
            each,
            store.exists(grid.ORCHESTRATOR_HEARTBEAT(each)),
            store.send("EXISTS", grid.ORCHESTRATOR_DRAIN(each), grid.ORCHESTRATOR_OBSTACLE(each)),
            store.get(grid.ORCHESTRATOR_PLATFORM_NAME(each)),
            store.smembers(grid.ORCHESTRATOR_BROWSERS(each)),
        )
        for each in ids
    ]
    offers: Offers = {}
    for each, is_alive, is_hindered, platform, browsers in replies:
        alive, hindered, name, entries = await is_alive, await is_hindered, await platform, await browsers
        if alive and not hindered:
            offers[each] = [
                Offer(browser=browser, version=version, platform=name or "any")
                for browser, _, version in (entry.partition("::") for entry in sorted(entries))
            ]
    return offers


async def obstacles(store: Store) -> list[str]:
    """Why orchestrators that run can start no session just now."""
    ids = sorted(await store.smembers(grid.ORCHESTRATORS()))
    found = [store.get(grid.ORCHESTRATOR_OBSTACLE(each)) for each in ids]
    return [obstacle for reply in found if (obstacle := await reply)]


def describe(offers: Offers) -> str:
    """All offers, for a person."""
    told = {str(offer) for offered in offers.values() for offer in offered}
    return ", ".join(sorted(told, key=str.lower)) or "none, because no orchestrator is in service"
