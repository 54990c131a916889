"""Videos as a test sees them: how long and large they are, and what colour they show when."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

RED, GREEN, BLUE = (255, 0, 0), (0, 128, 0), (0, 0, 255)
Colour = tuple[int, int, int]

needs_ffmpeg = pytest.mark.skipif(
    not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="no ffmpeg here: run make setup"
)


def page(colour: str) -> str:
    """A page of one colour, which names `colour`, that never stands still."""
    move = "setInterval(() => document.body.firstChild.textContent = Date.now(), 20)"
    return f"data:text/html,<body style='background:{colour}'><p>x</p><script>{move}</script>"


@dataclass(frozen=True)
class Probe:
    """What ffprobe says of a video."""

    width: int
    height: int
    frames: int
    rate: str
    duration: float


def probe(video: Path | str) -> Probe:
    """Reads the whole video, frame by frame."""
    entries = "stream=width,height,nb_read_frames,r_frame_rate:format=duration"
    told = _run(
        "ffprobe", "-v", "error", "-count_frames", "-show_entries", entries, "-of", "json", str(video)
    )
    found = json.loads(told)
    stream = found["streams"][0]
    return Probe(
        stream["width"],
        stream["height"],
        int(stream["nb_read_frames"]),
        stream["r_frame_rate"],
        float(found["format"]["duration"]),
    )


def colours(video: Path | str, *, most: int = 10_000) -> list[Colour]:
    """The colour in the middle of each frame, of so many: one that is live goes on and on."""
    form = ("-frames:v", str(most), "-vf", "crop=16:16,scale=1:1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    raw = _run("ffmpeg", "-v", "error", "-i", str(video), *form)
    return [(raw[at], raw[at + 1], raw[at + 2]) for at in range(0, len(raw), 3)]


def is_like(colour: Colour, wanted: Colour) -> bool:
    """Whether it is that colour, as far as the encoder has kept it."""
    return all(abs(ours - theirs) < 30 for ours, theirs in zip(colour, wanted, strict=True))


def _run(*command: str) -> bytes:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout
