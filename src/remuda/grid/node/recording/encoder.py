"""ffmpeg as a process: it takes pictures from a pipe or a screen, and writes a video that can be watched from
its first seconds on.

It runs at a low priority, and whoever feeds it drops what it does not take at once: a recording must never
slow its session. When its node dies, it completes the video: its pipe ends then, and one that grabs a screen,
which would not notice that the screen is gone, is told by a signal. By one: at the second ffmpeg gives up
what it writes. Hence it carries no mark of the node's either (`fleet/leftovers.py`).
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from remuda.base.confinement import Confinement, browser_environ
from remuda.base.directories import open_log, read_log
from remuda.base.errors import Unavailable
from remuda.base.processes import terminate_after_us, until_exit
from remuda.fleet.display import Display
from remuda.grid.node.recording.hls import MAX_BITRATE, SEGMENT, STREAM, level_of
from remuda.grid.video import Video

PROGRAM = "ffmpeg"
NICENESS = 5
END_GRACE = 3.0
QUALITY = 30
"""x264's constant rate factor: text stays sharp, and a still page costs next to nothing."""

# Matroska begins with all that there is to know, so nothing has to be guessed from what follows.
FROM_PIPE = ("-analyzeduration", "0", "-probesize", "32", "-f", "matroska", "-i", "pipe:0")


def find_ffmpeg() -> str | None:
    """Where ffmpeg is; None when it is not installed."""
    return shutil.which(PROGRAM)


def from_screen(display: str, video: Video, *, size: str) -> tuple[str, ...]:
    """ffmpeg's options for what an X server of this size shows."""
    # No pointer: WebDriver moves none.
    grab = ("-f", "x11grab", "-draw_mouse", "0", "-framerate", str(video.rate), "-video_size", size)
    return (*grab, "-i", display)


def command(program: str, source: Sequence[str], video: Video) -> list[str]:
    """The command that makes this video of this source, in its working directory."""
    width, height = video.size
    fit = (
        f"scale={width}:{height}:force_original_aspect_ratio=decrease:flags=bilinear,"
        f"pad={width}:{height}:(ow-iw)/2:(oh-ih)/2,setsar=1,format=yuv420p"
    )
    return [
        *(program, "-hide_banner", "-nostdin", "-nostats", *source, "-an", "-sn"),
        # A picture stays until the next one: each client's player can seek in a steady rate.
        *("-vf", fit, "-r", str(video.rate), "-fps_mode", "cfr"),
        *("-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-threads", "1"),
        *("-profile:v", "baseline", "-level:v", level_of(video), "-crf", str(QUALITY)),
        *("-maxrate", str(MAX_BITRATE), "-bufsize", str(2 * MAX_BITRATE)),
        *("-g", "99999", "-force_key_frames", f"expr:gte(t,n_forced*{SEGMENT:g})"),
        *("-f", "hls", "-hls_time", f"{SEGMENT:g}", "-hls_playlist_type", "event"),
        *("-hls_segment_type", "fmp4", "-hls_flags", "single_file+independent_segments"),
        *("-hls_segment_filename", video.file, STREAM),
    ]


class Encoder:
    """A running ffmpeg."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._pipe: asyncio.WriteTransport | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @classmethod
    async def start(
        cls, screen: Display | None, video: Video, *, directory: Path, log: Path, confinement: Confinement
    ) -> "Encoder":
        """An ffmpeg that takes its pictures from this screen, else from a pipe, and writes to this directory;
        Unavailable when it cannot be started."""
        program = find_ffmpeg()
        if program is None:
            raise Unavailable("ffmpeg is not installed on the node's machine")
        source: Sequence[str] = FROM_PIPE
        environ, reads = browser_environ(log.parent), list[Path]()
        if screen is not None:
            source = from_screen(screen.name, video, size=screen.size)
            environ, reads = {**environ, **screen.environ}, [screen.cookie]
        # What a screen is grabbed with says when it began, which it takes for information.
        level = ["-loglevel", "error" if screen is None else "info"]
        # It decodes what a hostile page may have drawn, and outlives its node.
        enter = confinement.inside(directory, reads=reads, dies_with_us=False)

        def begin() -> None:
            os.nice(NICENESS)
            enter()

        try:
            with open_log(log) as output:
                process = subprocess.Popen(
                    command(program, [*level, *source], video),
                    stdin=subprocess.PIPE if screen is None else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                    cwd=directory,
                    start_new_session=True,
                    pass_fds=confinement.inherited,
                    env=environ,
                    preexec_fn=begin,
                )
        except OSError as error:
            raise Unavailable(f"ffmpeg cannot be started: {error}") from error
        encoder = cls(process, log)
        if process.stdin is None:
            encoder._watcher = terminate_after_us(process.pid)
        else:
            loop = asyncio.get_running_loop()
            encoder._pipe, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        return encoder

    @property
    def is_busy(self) -> bool:
        """Whether it has not yet taken what it was given."""
        return self._pipe is None or self._pipe.is_closing() or self._pipe.get_write_buffer_size() > 0

    def write(self, part: bytes) -> None:
        """Gives it a part of its stream."""
        if self._pipe is not None:
            self._pipe.write(part)

    async def ended(self) -> int:
        """Waits until it has ended by itself; its exit status."""
        # Of one that has ended and was noticed, nothing is left to wait for.
        status = self._process.poll()
        if status is None:
            status = await until_exit(self._process)
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        return status

    async def stop(self) -> None:
        """Has it finish the video, and kills it should it not."""
        if self._pipe is None:
            self._process.terminate()
        else:
            self._pipe.close()
        try:
            async with asyncio.timeout(END_GRACE):
                await self.ended()
        except TimeoutError:
            self._process.kill()
            await self.ended()

    def log(self) -> str:
        """What it has written about its work."""
        return read_log(self._log)
