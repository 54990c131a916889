"""Videos where Selenoid's users look for them."""

import json

import pytest

from remuda.base.ids import new_id
from remuda.keyspace import grid, storage
from remuda.store import Store
from web_states import SessionWriter, orchestrator, running, visiting

STORAGE = new_id()
UNKNOWN = "01234567-89ab-4cde-8f01-23456789abcd"


async def test_selenoids_address_leads_to_the_file(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve(browserName="chrome")
        file = f"/storage/{STORAGE}/{session}/mine.mp4"
        video = {"url": f"/storage/{STORAGE}/{session}/video.m3u8", "file": file}
        await store.hset(grid.SESSION_CAPABILITIES(session), {"actual": json.dumps({"remuda:video": video})})
        await store.set(grid.SESSION_STORAGE(session), STORAGE)

        async with client.get(f"/video/{session}.mp4", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, file)
        async with client.delete(f"/video/{session}.mp4") as answer:
            assert (answer.status, await answer.json()) == (200, {"id": session})
        async with client.get(f"/video/{session}.mp4", allow_redirects=False) as answer:
            assert answer.status == 404

    assert await store.smembers(storage.STORAGE_UNWANTED(STORAGE)) == [session]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("name", [f"{UNKNOWN}.mp4", UNKNOWN, "x.mp4", "..%2Fetc.mp4"])
async def test_what_is_no_video_is_not_there(store: Store, method: str, name: str) -> None:
    async with visiting(store) as client, client.request(method, f"/video/{name}") as answer:
        assert answer.status == 404


async def test_a_session_without_a_video_says_so(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve(browserName="chrome")

        async with client.get(f"/video/{session}.mp4") as answer:
            assert answer.status == 404
            assert "has no video" in (await answer.json())["error"]["message"]
