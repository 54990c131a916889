"""What the doctor asks for Playwright: the browsers to serve, and whether they can record.

The `judge_*` functions decide, purely; the others look.
"""

import shutil
import subprocess
from collections.abc import Sequence

from remuda.base.config import Config
from remuda.base.programs import PROBE_TIMEOUT
from remuda.fleet.room import Check, CheckState, Question, Topic
from remuda.playwright.browsers import Launch, servable
from remuda.playwright.driver import FFMPEG, has_build, playwright_version

# Playwright's versions differ in which of them they ask for.
WEBM_ENCODERS = ("libvpx", "libvpx-vp9")


def look_at_playwright(config: Config) -> list[Check]:
    """What Playwright's clients can have."""
    return [judge_playwright(playwright_version(), servable(config)), look_at_playwright_video()]


def judge_playwright(version: str, launches: Sequence[Launch]) -> Check:
    """Playwright finds a browser to serve, or how to get one."""
    if not launches:
        advice = "needed for Playwright clients: apt-get install chromium, or python -m playwright install"
        return Check("playwright", CheckState.WARN, f"{version}, but no browser to serve", advice)
    return Check("playwright", CheckState.OK, f"{version}, serves {', '.join(map(str, launches))}")


def look_at_playwright_video() -> Check:
    """Whether `record_video` works: it needs an ffmpeg that can make WebM."""
    name, advice = "playwright video", "needed for Playwright's record_video: apt-get install ffmpeg"
    if has_build(FFMPEG):
        return Check(name, CheckState.OK, "recorded with Playwright's own ffmpeg")
    path = shutil.which(FFMPEG)
    if path is None:
        return Check(name, CheckState.WARN, "no ffmpeg", advice)
    command = [path, "-hide_banner", "-encoders"]
    try:
        encoders = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, CheckState.WARN, str(error), advice)
    if missing := [each for each in WEBM_ENCODERS if f" {each} " not in encoders]:
        return Check(name, CheckState.WARN, f"{path} lacks {', '.join(missing)}", advice)
    return Check(name, CheckState.OK, f"recorded with {path}")


QUESTIONS: Sequence[Question] = (Question(Topic.BROWSERS, look_at_playwright),)
