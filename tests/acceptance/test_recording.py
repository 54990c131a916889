"""A stock Selenium client has its session recorded: it can be watched live and later, with its messages."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from grids import codes_of
from herds import Herd
from remuda.base.ids import SessionId
from remuda.keyspace import grid, storage
from remuda.store import Store
from storages import indexed
from videos import BLUE, GREEN, RED, colours, is_like, needs_ffmpeg, page, probe
from waiting import eventually

DEADLINE = 60.0
RECORDED = {"se:recordVideo": True}

pytestmark = [pytest.mark.xdist_group("recording"), needs_ffmpeg]


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


class DrivenSession:
    """A session, asked in a thread so that the test can look on."""

    def __init__(self, driver: webdriver.Remote) -> None:
        self.driver = driver
        self.session = SessionId(driver.session_id or "")
        self.video: dict[str, str] = driver.capabilities.get("remuda:video", {})

    async def show(self, url: str) -> None:
        await asyncio.to_thread(self.driver.get, url)

    async def say(self, message: str) -> None:
        await asyncio.to_thread(self.driver.add_cookie, {"name": "remuda:message", "value": message})

    async def read(self, name: str) -> str:
        """A file of the recording, as a player gets it."""
        url = f"{self.video['url'].rpartition('/')[0]}/{name}"
        return await asyncio.to_thread(fetch, url)

    async def has_segment(self) -> bool:
        return "#EXTINF" in await self.read("stream.m3u8")

    async def is_complete(self) -> bool:
        return "#EXT-X-ENDLIST" in await self.read("stream.m3u8")

    async def quit(self) -> None:
        await asyncio.to_thread(self.driver.quit)


def fetch(url: str) -> str:
    body: bytes = urllib.request.urlopen(url, timeout=DEADLINE).read()
    return body.decode()


@asynccontextmanager
async def driving(herd: Herd, **capabilities: Any) -> AsyncIterator[DrivenSession]:
    options = webdriver.ChromeOptions()
    for name, value in capabilities.items():
        options.set_capability(name, value)
    driven = DrivenSession(await asyncio.to_thread(webdriver.Remote, herd.url, options=options))
    try:
        yield driven
    finally:
        await driven.quit()


def directory_of(herd: Herd, session: SessionId) -> Path:
    return herd.data / "storage" / session


async def test_a_session_is_watched_live_and_later(herd: Herd, store: Store) -> None:
    async with driving(herd, **RECORDED) as driven:
        assert driven.driver.capabilities["se:recordVideo"] is True
        await driven.show(page("red"))
        await eventually(driven.has_segment, DEADLINE)
        await driven.show(page("blue"))

        live = await driven.read("stream.m3u8")
        assert "#EXT-X-PLAYLIST-TYPE:EVENT" in live
        assert not await driven.is_complete()
        assert "stream.m3u8" in await driven.read("video.m3u8")
        played = await asyncio.to_thread(colours, driven.video["url"], most=20)
        storage_id = await store.get(grid.SESSION_STORAGE(driven.session))
        shown = (await asyncio.to_thread(herd.request, "GET", f"/api/sessions/{driven.session}"))[1]
        await eventually(lambda: has_colour(directory_of(herd, driven.session) / "video.mp4", BLUE), DEADLINE)

    await eventually(driven.is_complete, DEADLINE)
    assert any(is_like(colour, RED) for colour in played)
    assert (await driven.read("stream.m3u8")).startswith(live.rstrip())
    assert driven.video["url"] == f"{herd.url}/storage/{storage_id}/{driven.session}/video.m3u8"
    assert shown["videoUrl"] == f"/storage/{storage_id}/{driven.session}/video.m3u8"
    video = probe(driven.video["file"])
    assert (video.width, video.height, video.rate) == (1280, 720, "10/1")
    assert video.frames == pytest.approx(video.duration * 10, abs=2)
    assert video.duration >= 4
    assert "RFAILURE" not in await codes_of(store, driven.session)
    await assert_indexed(herd, store, driven.session, storage_id or "")


def has_colour(video: Path, colour: tuple[int, int, int]) -> bool:
    return any(is_like(each, colour) for each in colours(video))


async def assert_indexed(herd: Herd, store: Store, session: SessionId, storage_id: str) -> None:
    """The storage has heard of every file, as it finally is."""
    directory = directory_of(herd, session)

    async def knows_all() -> bool:
        known = {each.path.name: each.size for each in await indexed(directory.parent, session)}
        return known == {each.name: each.stat().st_size for each in directory.iterdir()}

    await eventually(knows_all, DEADLINE)
    assert {"video.m3u8", "stream.m3u8", "video.mp4", "messages.m3u8", "messages.vtt"} <= {
        each.name for each in directory.iterdir()
    }
    assert await store.llen(storage.STORAGE_METADATA_PENDING(storage_id)) == 0


async def test_messages_of_the_client_are_subtitles_and_no_cookies(herd: Herd) -> None:
    async with driving(herd, **RECORDED) as driven:
        await driven.show(f"{herd.url}/healthz")
        await eventually(driven.has_segment, DEADLINE)
        for name in ("webgrid:message", "remuda:message"):
            await asyncio.to_thread(driven.driver.add_cookie, {"name": name, "value": f"by <{name}>"})
        path = f"/session/{driven.session}/remuda/message"
        told = await asyncio.to_thread(herd.request, "POST", path, '{"message": "by a command"}')
        refused = await asyncio.to_thread(herd.request, "POST", path, '{"message": 5}')

        assert (told[0], refused[0]) == (200, 400)
        assert await asyncio.to_thread(driven.driver.get_cookies) == []
        live = await driven.read("messages.vtt")

    await eventually(driven.is_complete, DEADLINE)
    texts = ("by &lt;webgrid:message&gt;", "by &lt;remuda:message&gt;", "by a command")
    assert re.findall(r"\n(by .*)\n", live) == list(texts)
    duration = probe(driven.video["file"]).duration
    begins = [float(each) for each in re.findall(r"00:00:(\d\d\.\d{3}) -->", live)]
    # The first segment was there before, and the session went on after.
    assert all(3.5 <= begin <= duration + 0.5 for begin in begins)
    assert begins == sorted(begins)
    assert 'URI="messages.m3u8"' in await driven.read("video.m3u8")
    parts = [line for line in (await driven.read("messages.m3u8")).splitlines() if line.endswith(".vtt")]
    together = "".join([await driven.read(part) for part in dict.fromkeys(parts)])
    assert all(text in together for text in texts)


async def test_nothing_is_recorded_unless_somebody_asks(herd: Herd, store: Store) -> None:
    async with driving(herd) as driven:
        await asyncio.to_thread(driven.driver.add_cookie, {"name": "webgrid:message", "value": "to nobody"})

        assert driven.driver.capabilities.keys().isdisjoint({"remuda:video", "se:recordVideo"})
        assert await store.get(grid.SESSION_STORAGE(driven.session)) is None
        assert not directory_of(herd, driven.session).exists()


async def test_selenoids_options_decide_what_the_video_is_like(herd: Herd) -> None:
    options = {
        "enableVideo": True,
        "videoScreenSize": "640x480",
        "videoFrameRate": 5,
        "videoName": "mine.mp4",
    }
    async with driving(herd, **{"selenoid:options": options}) as driven:
        await driven.show(page("green"))
        await eventually(driven.has_segment, DEADLINE)

    await eventually(driven.is_complete, DEADLINE)
    assert driven.video["file"].endswith(f"{driven.session}/mine.mp4")
    video = probe(driven.video["file"])
    assert (video.width, video.height, video.rate) == (640, 480, "5/1")
    assert is_like(colours(driven.video["file"])[-1], GREEN)


async def test_the_video_follows_the_client_from_window_to_window(herd: Herd) -> None:
    async with driving(herd, **RECORDED) as driven:
        await driven.show(page("red"))
        first = driven.driver.current_window_handle
        await asyncio.to_thread(driven.driver.switch_to.new_window, "tab")
        await driven.show(page("blue"))
        video = directory_of(herd, driven.session) / "video.mp4"

        await eventually(lambda: shows(video, BLUE), DEADLINE)
        await asyncio.to_thread(driven.driver.close)
        await asyncio.to_thread(driven.driver.switch_to.window, first)
        await eventually(lambda: shows(video, RED), DEADLINE)


def shows(video: Path, colour: tuple[int, int, int]) -> bool:
    """Whether that is the last that was recorded."""
    if not video.exists() or not video.stat().st_size:
        return False
    return is_like(colours(video)[-1], colour)


# In the page: how far the video has been shown, whether it has an end, and what its subtitles say.
PLAYED = (
    "const v = document.querySelector('aside video'); if (!v) return null;"
    "v.play().catch(() => {});"
    "return [v.currentTime, Number.isFinite(v.duration), v.videoWidth,"
    " [...(v.textTracks[0]?.cues ?? [])].map((cue) => cue.text).join()]"
)


async def test_the_dashboard_plays_it_live_and_later(herd: Herd) -> None:
    async with driving(herd) as viewer:
        async with driving(herd, **RECORDED) as driven:
            await driven.show(page("red"))
            await driven.say("<look>")
            await eventually(driven.has_segment, DEADLINE)
            await viewer.show(f"{herd.url}/#session/{driven.session}")

            await eventually(lambda: is_played(viewer, is_over=False), DEADLINE)
        await eventually(driven.is_complete, DEADLINE)

        await eventually(lambda: is_played(viewer, is_over=True), DEADLINE)


async def is_played(viewer: DrivenSession, *, is_over: bool) -> bool:
    """Whether the dashboard shows pictures and messages, of a video that has an end or not."""
    seen = await asyncio.to_thread(viewer.driver.execute_script, PLAYED)
    if seen is None:
        return False
    shown, has_end, width, messages = seen
    return bool(shown > 0.5 and has_end >= is_over and width == 1280 and messages == "&lt;look&gt;")
