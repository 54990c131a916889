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


async def send(client: aiohttp.ClientSession, body: bytes) -> tuple[int, Any]:
    """Status and JSON of the answer to a body without a Content-Type."""
    skip = ("Content-Type", "User-Agent")
    async with client.post("/graphql", data=body, skip_auto_headers=skip) as response:
        assert "Content-Type" not in response.request_info.headers
        return response.status, await response.json()
