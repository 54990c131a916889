"""Messages of the client as subtitles: WebVTT, whole for those who want a file, and in parts for HLS.

A part covers ten seconds and is written once they are over, since a player reads it only once. Most have
nothing to say; those share one file.
"""

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from remuda.base.directories import open_plain
from remuda.grid.node.recording.hls import MASTER, MESSAGES, STREAM, media_playlist, replace_file

PLAYLISTS = (MASTER, STREAM, MESSAGES)
WHOLE = "messages.vtt"
SILENCE = "silence.vtt"
SHOWN_FOR = 5.0
"""Seconds for which a message is shown."""
PART = 10.0
LONGEST = 500
"""Characters of a message that are shown."""

_PART_NAME = "messages-"
_HEAD = "WEBVTT\n"
# RFC 8216, 3.5: how the times in here relate to those of the pictures, which begin at 0 as well.
_PART_HEAD = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n"


def recording_parts(video: str | None) -> list[str]:
    """Everything that a player of a recording asks for, with the file of its pictures if it is known; a name
    that ends with a slash stands for all that begin so."""
    return [*PLAYLISTS, SILENCE, f"{_PART_NAME}/", *([video] if video else [])]


class Cue(NamedTuple):
    """A message, with the seconds at which it appears and disappears."""

    begin: float
    end: float
    text: str


def make_cue(text: str, *, at: float) -> Cue:
    """The cue that shows this text from then on."""
    # An empty line would end the cue, and nothing in it is meant as markup.
    shown = "\n".join(" ".join(line.split()) for line in text[:LONGEST].splitlines() if line.strip())
    return Cue(at, at + SHOWN_FOR, html.escape(shown, quote=False))


def write_cue(cue: Cue) -> str:
    """The cue as it stands in a file."""
    return f"\n{_time(cue.begin)} --> {_time(cue.end)}\n{cue.text}\n"


def _time(seconds: float) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}"


@dataclass
class Subtitles:
    """The messages of one recording, in its directory. Its calls block: they belong in a thread."""

    directory: Path
    _cues: list[Cue] = field(default_factory=list)
    _parts: list[tuple[float, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Writes what a player may ask for before anybody has said anything."""
        replace_file(self.directory / WHOLE, _HEAD)
        replace_file(self.directory / SILENCE, _PART_HEAD)
        self._write_playlist(is_over=False)

    def say(self, text: str, *, at: float) -> None:
        """Shows a message from then on."""
        cue = make_cue(text, at=at)
        if not cue.text:
            return
        self._cues.append(cue)
        with open(self.directory / WHOLE, "a", encoding="utf-8", opener=open_plain) as file:
            file.write(write_cue(cue))

    def publish(self, now: float) -> None:
        """Writes the parts that are over by now."""
        before = len(self._parts)
        while (len(self._parts) + 1) * PART <= now:
            self._add_part(PART)
        if len(self._parts) > before:
            self._write_playlist(is_over=False)

    def close(self, now: float) -> None:
        """Writes the rest; there will be no more."""
        self.publish(now)
        if (rest := now - len(self._parts) * PART) > 0:
            self._add_part(rest)
        self._write_playlist(is_over=True)

    def _add_part(self, seconds: float) -> None:
        number = len(self._parts)
        begin = number * PART
        # One that reaches into the next part is in both, for players that begin there.
        shown = [cue for cue in self._cues if cue.begin < begin + seconds and cue.end > begin]
        self._cues = [cue for cue in self._cues if cue.end > begin + seconds]
        name = f"{_PART_NAME}{number:05d}.vtt" if shown else SILENCE
        if shown:
            replace_file(self.directory / name, _PART_HEAD + "".join(map(write_cue, shown)))
        self._parts.append((seconds, name))

    def _write_playlist(self, *, is_over: bool) -> None:
        text = media_playlist(self._parts, target=PART, is_over=is_over)
        replace_file(self.directory / MESSAGES, text)
