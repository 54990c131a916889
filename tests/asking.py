"""A client of /graphql."""

from typing import Any

import aiohttp


async def ask(client: aiohttp.ClientSession, query: str, **variables: Any) -> Any:
    """The data that a query without errors brings."""
    async with client.post("/graphql", json={"query": query, "variables": variables}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        assert "errors" not in answer, answer
        return answer["data"]
