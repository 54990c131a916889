"""A session's recorder: finds what it needs, records in the background, and leaves a video that plays.

Nothing that goes wrong here ends or delays the session; but it is never silent either: the client's
capabilities say that there will be no video, or the session's log that there is no more of it.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from remuda.base import clock
from remuda.base.errors import DriverUnavailable, Lost, RemudaError, Unavailable
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.display import Display
from remuda.fleet.relay import Address
from remuda.grid.artifacts import SessionArtifacts
from remuda.grid.capabilities import Capabilities
from remuda.grid.node.driver import Driver
from remuda.grid.node.recording import hls
from remuda.grid.node.recording.encoder import Encoder, find_ffmpeg
from remuda.grid.node.recording.source import Grab, Source, open_screencast
from remuda.grid.node.recording.subtitles import PART, Subtitles
from remuda.grid.sessions import Sessions
from remuda.grid.video import Video
from remuda.storage.directory import LocalDirectory, keep_storage_id
from remuda.storage.model import Owner
from remuda.storage.writer import ArtifactWriter
from remuda.store import Store

log = get_logger(__name__)

ANNOUNCE_EVERY = 30.0
"""Seconds after which the storage hears of a video that has grown: a session may last for hours."""
SCREEN_TIMEOUT = 10.0
FIRST_PICTURE_TIMEOUT = 5.0
LOOK_EVERY = 0.02


class Recorder:
    """Records one session: `prepare` before its browser starts, `start`, and `stop` before it ends."""

    def __init__(
        self, store: Store, session: SessionId, *, video: Video, storage: Path, driver: Driver
    ) -> None:
        self._store = store
        self._session = session
        self._video = video
        self._storage = storage
        self._driver = driver
        self._writer: ArtifactWriter | None = None
        self._kind = SessionArtifacts(store)
        self._directory = LocalDirectory(storage).path_of(Owner(self._kind.name, session))
        self._subtitles = Subtitles(self._directory)
        self._writing = asyncio.Lock()
        self._encoder: Encoder | None = None
        self._source: Source | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ended_at: float | None = None
        self._is_leaving = False
        self.url = ""
        """Where its files are, from the front door's root."""
        self.problem = ""
        """Why the video is missing or incomplete."""

    # Before the browser starts

    async def prepare(self) -> None:
        """Makes room for the video, and gives the browser a screen where it needs one to be seen."""
        try:
            if find_ffmpeg() is None:
                raise Unavailable("ffmpeg is not installed on the node's machine")
            await self._prepare_screen()
            storage_id = await asyncio.to_thread(keep_storage_id, self._storage)
            self._writer = ArtifactWriter(
                self._store, self._kind, storage=storage_id, directory=self._storage
            )
            self._driver.confinement.own(await self._writer.open(self._session))
            await asyncio.to_thread(self._write_playlists)
            self.url = f"/storage/{storage_id}/{self._session}"
        except (RemudaError, OSError) as error:
            await self._fail(str(error))

    async def _prepare_screen(self) -> None:
        family = self._driver.browser.family
        if family.is_chromium:
            return
        if self._driver.confinement.protection.shares_display:
            raise Unavailable(f"{family.title} uses the herd's own display (share_display)")
        await self._driver.open_display(str(self._video.size), timeout=SCREEN_TIMEOUT)

    @property
    def _screen(self) -> Display | None:
        """The screen that is recorded. A Chromium may have one, but shows its pages by itself."""
        return None if self._driver.browser.family.is_chromium else self._driver.display

    def _write_playlists(self) -> None:
        hls.replace_file(self._directory / hls.MASTER, hls.master_playlist(self._video))
        empty = hls.media_playlist([], target=hls.SEGMENT, is_over=False)
        hls.replace_file(self._directory / hls.STREAM, empty)
        self._subtitles.begin()

    def grants(self, actual: Capabilities) -> Capabilities:
        """What the client is told of its video."""
        if self.problem:
            told: dict[str, Any] = {"problem": self.problem}
        else:
            told = {"url": f"{self.url}/{hls.MASTER}", "file": f"{self.url}/{self._video.file}"}
        return {**actual, "se:recordVideo": not self.problem, "remuda:video": told}

    # While it runs

    async def start(self, *, driver_session: str, devtools: Address | None) -> None:
        """Records from now on, in the background."""
        if self.problem:
            return
        if self._screen is not None and not self._driver.browser.family.screen_args:
            await self._fill_screen(driver_session, self._screen)
        self._task = asyncio.create_task(self._record(driver_session, devtools), name="record")

    async def _fill_screen(self, driver_session: str, display: Display) -> None:
        """Has the window fill the screen: around it there is nothing to see."""
        width, height = map(int, display.size.split("x"))
        rect = msgspec.json.encode({"x": 0, "y": 0, "width": width, "height": height})
        path = f"/session/{driver_session}/window/rect"
        try:
            await self._driver.call("POST", path, rect, timeout=SCREEN_TIMEOUT)
        except DriverUnavailable as error:
            log.warning("window not resized", session=self._session, reason=error.message)

    async def _record(self, driver_session: str, devtools: Address | None) -> None:
        try:
            await self._announce()
            await self._open(driver_session, devtools)
            async with asyncio.TaskGroup() as group:
                assert self._source is not None
                group.create_task(self._source.run(), name="bring pictures")
                group.create_task(self._watch_encoder(), name="watch encoder")
                group.create_task(self._publish(), name="publish messages")
                group.create_task(self._keep_announcing(), name="announce video")
        except* (RemudaError, OSError) as errors:
            # A browser that is closed meanwhile answers no longer: `stop` says so.
            if not self._is_leaving or self.elapsed() > 0:
                await self._fail("; ".join(map(str, errors.exceptions)))
        except* Exception as errors:
            log.exception("recording broke", session=self._session)
            await self._fail(f"a bug: {errors.exceptions[0]!r}")

    async def _open(self, driver_session: str, devtools: Address | None) -> None:
        encoder_log = self._driver.directory / "ffmpeg.log"
        self._encoder = await Encoder.start(
            self._screen,
            self._video,
            directory=self._directory,
            log=encoder_log,
            confinement=self._driver.confinement,
        )
        if self._screen is not None:
            self._source = Grab(self._encoder)
        elif devtools is not None:
            self._source = await open_screencast(
                self._driver, self._encoder, self._video, devtools=devtools, driver_session=driver_session
            )
        else:
            raise Unavailable("The browser has neither a screen of its own nor DevTools")

    async def _watch_encoder(self) -> None:
        assert self._encoder is not None
        status = await self._encoder.ended()
        lines = self._encoder.log().strip().splitlines()
        raise Unavailable(f"ffmpeg ended with status {status}: {lines[-1] if lines else 'no output'}")

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(PART)
            async with self._writing:
                await asyncio.to_thread(self._subtitles.publish, self.elapsed())

    async def _keep_announcing(self) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_EVERY)
            with suppress(Unavailable):  # There is a next time.
                await self._announce()

    def elapsed(self) -> float:
        """Seconds since the video began; 0 as long as it has not."""
        began = None if self._source is None else self._source.began
        return 0.0 if began is None else (self._ended_at or clock.monotonic()) - began

    def show(self, window: str) -> None:
        """Shows this window of the browser's from now on."""
        if self._source is not None and self._task is not None and not self._task.done():
            self._source.show(window)

    async def say(self, message: str) -> None:
        """Shows a message of the client's in the video."""
        if self.problem:
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._subtitles.say, message, at=self.elapsed())
        except OSError as error:
            await self._fail(str(error))

    # At its end

    async def leave(self) -> None:
        """Waits for the first picture, without which a test that fails at once would have no video. Completes
        the video of a screen, which the browser is about to leave black: what people look for is the last
        picture. A screencast ends with that anyway."""
        self._is_leaving = True
        ends_at = clock.monotonic() + FIRST_PICTURE_TIMEOUT
        while clock.monotonic() < ends_at:
            if not self._is_awaiting_picture():
                break
            await asyncio.sleep(LOOK_EVERY)
        if isinstance(self._source, Grab):
            await self.stop()

    def _is_awaiting_picture(self) -> bool:
        return self._task is not None and not self._task.done() and self.elapsed() == 0

    async def stop(self) -> None:
        """Completes the video. While ffmpeg does that, the browser must not be killed: so would it be."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="complete the video")
        # It is completed even if the caller is cancelled.
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._ended_at = clock.monotonic()
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        try:
            await self._stop_encoder()
            await asyncio.to_thread(self._close_files)
        except OSError as error:
            await self._fail(str(error))
        except Exception:  # A browser, and a slot, wait for their end.
            log.exception("recording not completed", session=self._session)

    async def _stop_encoder(self) -> None:
        if self._encoder is not None:
            if self._source is not None:
                self._source.finish()
            await self._encoder.stop()
        if not self.problem and self.elapsed() == 0:
            await self._fail("The session ended before the browser showed anything")

    def _close_files(self) -> None:
        self._subtitles.close(self.elapsed())
        # However ffmpeg ended, what it has written plays; but players must not wait for more.
        hls.end_playlists(self._directory)

    async def announce(self) -> None:
        """Tells the storage what the recording has come to."""
        try:
            await self._announce()
        except (RemudaError, OSError) as error:
            log.warning("video not announced", session=self._session, reason=str(error))

    async def _announce(self) -> None:
        if self._writer is None:
            return
        files = await asyncio.to_thread(lambda: [each.name for each in self._directory.iterdir()])
        lasting = [name for name in files if name.endswith((".m3u8", ".mp4", ".vtt"))]
        with suppress(Lost):  # Evicted under our hands.
            await self._writer.announce(self._session, *lasting)

    async def _fail(self, reason: str) -> None:
        """Notes once why there is no (more) video, for the operator and for who looks at the session."""
        if self.problem:
            return
        self.problem = reason
        log.warning("recording failed", session=self._session, reason=reason)
        with suppress(Unavailable):
            await Sessions(self._store).log(self._session, "RFAILURE", message=reason)
