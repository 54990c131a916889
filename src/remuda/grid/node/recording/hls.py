"""The playlists of a recording: what they are called, what the node itself writes of them, and how they end.

`video.m3u8` is the one to open. It names the pictures, `stream.m3u8`, which ffmpeg writes, and the messages,
`messages.m3u8`. All pictures are in one fragmented MP4 file that can also be downloaded and played as it is:
HLS only says which bytes of it make a segment.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from remuda.grid.video import Video

MASTER = "video.m3u8"
STREAM = "stream.m3u8"
MESSAGES = "messages.m3u8"

SEGMENT = 4.0
"""Seconds of a segment: how far a live picture lags behind, and at most what a power cut costs."""
MAX_BITRATE = 1_000_000
LARGEST = 64 << 20
"""Bytes of the largest playlist that is ended. A week of segments takes a sixth of it."""
END = "#EXT-X-ENDLIST"
"""RFC 8216, 4.3.3.4: nothing will be added any more."""

# Constrained baseline: what x264's fastest preset makes anyway, and everything plays.
_PROFILE = "42C0"
# By the macroblocks of 16x16 pixels that a picture may have at 30 frames a second (H.264, table A-1).
_LEVELS = ((8192, "4.0", "28"), (36864, "5.1", "33"))


def level_of(video: Video) -> str:
    """The level of H.264 that this video needs."""
    return _level(video)[0]


def codec_of(video: Video) -> str:
    """The codec's name for players (RFC 6381)."""
    return f"avc1.{_PROFILE}{_level(video)[1]}"


def _level(video: Video) -> tuple[str, str]:
    blocks = -(-video.size.width // 16) * -(-video.size.height // 16)
    return next((level, code) for most, level, code in _LEVELS if blocks <= most)


def master_playlist(video: Video) -> str:
    """The playlist of playlists (RFC 8216, 4.3.4)."""
    return _lines(
        "#EXTM3U",
        "#EXT-X-VERSION:7",
        "#EXT-X-INDEPENDENT-SEGMENTS",
        '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="messages",NAME="Messages",DEFAULT=YES,AUTOSELECT=YES,'
        f'FORCED=NO,URI="{MESSAGES}"',
        f'#EXT-X-STREAM-INF:BANDWIDTH={MAX_BITRATE},CODECS="{codec_of(video)}",RESOLUTION={video.size},'
        f'FRAME-RATE={video.rate:.3f},SUBTITLES="messages"',
        STREAM,
    )


def media_playlist(segments: Iterable[tuple[float, str]], *, target: float, is_over: bool) -> str:
    """A playlist that grows until it is over; each segment with its seconds and its file."""
    entries = [line for seconds, file in segments for line in (f"#EXTINF:{seconds:.3f},", file)]
    return _lines(
        "#EXTM3U",
        "#EXT-X-VERSION:7",
        f"#EXT-X-TARGETDURATION:{target:.0f}",
        "#EXT-X-MEDIA-SEQUENCE:0",
        "#EXT-X-PLAYLIST-TYPE:EVENT",
        *entries,
        *([END] if is_over else []),
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


# In the recording's directory. These block. The directory belongs to the user of the browser, which may be
# hostile, and the storage that ends playlists may be root: no link there is followed.


def replace_file(path: Path, text: str) -> None:
    """Writes a file that others read meanwhile: they see the old or the new, never half of it."""
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        with draft.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def end_playlists(directory: Path) -> bool:
    """Has all playlists of a session say that they are over; whether one did not say so yet.

    A node that is killed leaves playlists without an end, and players would wait for more for ever.
    """
    has_ended = False
    for path in directory.glob("*.m3u8"):
        try:
            # Not blocking: to open a named pipe would wait for its writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            continue
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                continue
            text = os.pread(descriptor, LARGEST, 0).decode(errors="surrogateescape")
        finally:
            os.close(descriptor)
        # One that only names others neither grows nor ends.
        if END in text or "#EXT-X-STREAM-INF" in text:
            continue
        replace_file(path, text.rstrip("\n") + f"\n{END}\n")
        # It keeps its age: what is old shall be evicted.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
        has_ended = True
    return has_ended
