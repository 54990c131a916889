"""A herd that the acceptance tests of one process share, and the census at its end."""

import asyncio
from collections.abc import Iterator

import pytest

from herds import Herd, new_herd
from remuda.store import Store
from remuda.store.census import Stranger, take_census

# Playwright's first client of a browser waits for it to start, which takes long on a busy machine.
PATIENT = {"REMUDA_PLAYWRIGHT_WAIT": "120"}


@pytest.fixture(scope="session")
def herd() -> Iterator[Herd]:
    """A whole herd with two slots. When the tests are through, its Redis holds only what is declared."""
    with new_herd("--slots", "2", environ=PATIENT) as herd:
        yield herd
        assert asyncio.run(_census(herd)) == []


async def _census(herd: Herd) -> list[Stranger]:
    async with Store(herd.redis_url) as store:
        return await take_census(store)
