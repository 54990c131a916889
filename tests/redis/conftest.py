"""What several tests with a Redis share."""

from collections.abc import AsyncIterator

import pytest

from managers import Client, running
from remuda.store import Store


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """A client of a manager of its own."""
    async with running(store) as (_, client):
        yield client
