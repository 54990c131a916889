"""Pages that a browser of this machine shows, one of the herd's own perhaps: they get no browser."""

import asyncio
import json
from contextlib import suppress
from urllib.request import urlopen

import psutil
import pytest

from grids import all_sessions
from herds import DEADLINE, Herd
from remuda.keyspace.fleet import SECRET
from remuda.store import Store


async def sessions_of(herd: Herd) -> set[str]:
    async with Store(herd.redis_url) as store:
        return set(await all_sessions(store))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:8099"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_no_session_is_made_for_what_a_page_can_send(herd: Herd, headers: dict[str, str]) -> None:
    wanted = json.dumps({"capabilities": {"alwaysMatch": {"browserName": "chrome"}}})
    before = await sessions_of(herd)

    status, content, _ = await asyncio.to_thread(herd.request, "POST", "/session", wanted, **headers)

    assert status == (400 if "Content-Type" in headers else 403)
    assert content["value"].keys() == {"error", "message", "stacktrace"}
    assert await sessions_of(herd) == before


async def test_the_herds_secret_is_nowhere_to_be_seen(herd: Herd) -> None:
    async with Store(herd.redis_url) as store:
        secret = await store.get(SECRET())
    assert secret

    for path in ("/status", "/metrics", "/api/sessions", "/api/overview", "/graphql?query={grid{uri}}"):
        told = await asyncio.to_thread(read, herd, path)
        assert secret not in told, path
    assert secret not in "\n".join(herd.lines) + herd.log()
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            assert secret not in " ".join([*process.cmdline(), *process.environ().values()])


def read(herd: Herd, path: str) -> str:
    with urlopen(herd.url + path, timeout=DEADLINE) as answer:
        body: bytes = answer.read()
        return f"{answer.headers}{body.decode()}"
