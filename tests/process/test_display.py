"""The screens of browsers: what gets in, and what does not."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from remuda.base.config import Config
from remuda.base.confinement import (
    Confinement,
    Protection,
    ProtectionConfig,
    browser_environ,
    protection_of,
    remove_directory,
)
from remuda.base.errors import DriverUnavailable
from remuda.fleet.display import FIRST_PORT, Display
from screens import cookie_in, lets_in, needs_xvfb, place_of
from videos import needs_ffmpeg

pytestmark = needs_xvfb

DEADLINE = 60.0
UIDS = range(57200, 57210)
"""Not those of a herd that other tests run at the same time."""


@dataclass
class Screened:
    """A browser's place with a screen, and no browser."""

    directory: Path
    confinement: Confinement
    display: Display

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """What a shell says in the browser's place."""
        return subprocess.run(
            ["sh", "-c", script],
            cwd=self.directory,
            env={**browser_environ(self.directory), **self.display.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            preexec_fn=self.confinement.inside(self.directory),
        )


@asynccontextmanager
async def screened(protection: Protection) -> AsyncIterator[Screened]:
    # Where browsers have theirs: what lies above is open to all.
    directory = Path(tempfile.mkdtemp(prefix="remuda-test-", dir="/tmp"))
    confinement = Confinement.claim(protection)
    try:
        confinement.own(directory)
        confinement.make_home(directory)
        environ = browser_environ(directory)
        display = await Display.start(directory, environ, confinement, timeout=DEADLINE)
        try:
            yield Screened(directory, confinement, display)
        finally:
            display.stop()
    finally:
        remove_directory(directory, owners=protection.users)
        confinement.release()


@pytest.fixture
def protection() -> Protection:
    uids = UIDS if os.geteuid() == 0 else range(0)
    return replace(protection_of(Config(ProtectionConfig(browser_uids=""))), uids=uids, has_namespaces=True)


@pytest.fixture
async def pair(protection: Protection) -> AsyncIterator[tuple[Screened, Screened]]:
    """Two browsers."""
    async with AsyncExitStack() as stack:
        mine = await stack.enter_async_context(screened(protection))
        yield mine, await stack.enter_async_context(screened(protection))


def address_of(display: Display) -> tuple[str, int]:
    host, _, number = display.name.partition(":")
    return host, FIRST_PORT + int(number)


async def test_a_screen_lets_in_only_who_has_its_cookie(pair: tuple[Screened, Screened]) -> None:
    mine, other = pair
    place = address_of(mine.display)
    cookies = [cookie_in(each.display.cookie.read_bytes()) for each in pair]

    assert lets_in(place, cookies[0])
    assert not lets_in(place)
    assert not lets_in(place, cookies[1])
    assert lets_in(address_of(other.display), cookies[1])


async def test_a_screen_listens_at_one_address_of_loopback_and_nowhere_else(
    pair: tuple[Screened, Screened],
) -> None:
    screens = [psutil.Process(each.display._process.pid) for each in pair]

    assert [place_of(each) for each in screens] == [address_of(each.display) for each in pair]
    assert all(address_of(each.display)[0].startswith("127.") for each in pair)
    unix = [
        line
        for each in pair
        for line in Path("/proc/net/unix").read_text().splitlines()
        if line.endswith(f"/X{each.display.name.partition(':')[2]}")
    ]
    assert unix == []


@pytest.mark.skipif(
    protection_of(Config(ProtectionConfig(browser_uids=""))).landlock == 0, reason="no Landlock here"
)
async def test_a_browser_reads_the_cookie_of_its_own_screen_and_changes_none(
    pair: tuple[Screened, Screened],
) -> None:
    mine, other = pair
    script = f"""
    cat $XAUTHORITY | wc -c
    cat {other.display.cookie}
    echo > $XAUTHORITY; chmod 777 $HOME; rm -f $XAUTHORITY; mv other $XAUTHORITY
    wc -c < $XAUTHORITY
    """

    run = mine.run(script)

    size = len(mine.display.cookie.read_bytes())
    assert run.stdout.split() == [str(size), str(size)]
    assert mine.display.cookie.stat().st_mode & 0o77 == 0


@needs_ffmpeg
async def test_a_program_of_one_browser_sees_its_screen_and_no_others(
    pair: tuple[Screened, Screened],
) -> None:
    mine, other = pair
    look = "ffmpeg -loglevel fatal -f x11grab -i {} -frames:v 1 -f null - && echo seen"

    own = mine.run(look.format(mine.display.name))
    others = mine.run(look.format(other.display.name))

    assert (own.stdout, others.stdout) == ("seen\n", "")


async def test_a_machine_without_xvfb_has_no_screens(
    protection: Protection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DriverUnavailable, match="Xvfb is not installed"):
        async with screened(protection):
            pass
