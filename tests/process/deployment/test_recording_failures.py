"""What becomes of a recording on a bad day: the session goes on, what was recorded plays, and somebody says
why there is no more of it."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deployments import (
    DEADLINE,
    Client,
    Deployment,
    Reply,
    has_ended,
    node_of,
    open_client,
    working_deployment,
)
from grids import log_of
from herds import running_herd
from installed import BROWSERS, LIGHTEST
from processes import are_gone, children_of, name_of
from remuda.base.ids import SessionId
from remuda.grid.browsers import FAMILIES
from remuda.keyspace import grid
from remuda.store import Store
from screens import lets_in, place_of, screens_below
from storages import indexed
from videos import BLUE, RED, colours, is_like, needs_ffmpeg, page, probe
from waiting import eventually

SCREENED = [
    pytest.param(
        name, marks=pytest.mark.skipif(name not in BROWSERS, reason=f"no {FAMILIES[name].title} here")
    )
    for name in ("firefox", "MiniBrowser")
]

# RFC 8216, 4.3.2.2: a part of the one file that holds the video.
_RANGE = re.compile(r"^#EXT-X-BYTERANGE:(\d+)@(\d+)", re.MULTILINE)

pytestmark = [
    pytest.mark.xdist_group("recording"),
    needs_ffmpeg,
    pytest.mark.skipif("chrome" not in BROWSERS, reason="no Chromium here: run make setup"),
]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with working_deployment(["gateway", "manager", "orchestrator", "storage"]) as deployment:
        yield deployment


async def record(client: Client, browser: str = LIGHTEST, colour: str = "red") -> SessionId:
    """A recorded session that shows something of this colour."""
    reply = await client.ask(browserName=browser, **{"se:recordVideo": True})
    assert reply.status == 200, reply.value
    assert reply.value["capabilities"]["se:recordVideo"] is True
    session = SessionId(reply.value["sessionId"])
    await client.call("POST", f"/session/{session}/url", {"url": page(colour)})
    return session


def files_of(deployment: Deployment, session: SessionId) -> Path:
    return deployment.home / "data" / "storage" / session


def has_segment(files: Path) -> bool:
    """Whether a first part of the video is on the disk; ffmpeg names it a moment before it is."""
    ranges = _RANGE.findall((files / "stream.m3u8").read_text())
    ends = [int(length) + int(start) for length, start in ranges]
    return bool(ends) and max(ends) <= (files / "video.mp4").stat().st_size


def is_complete(files: Path) -> bool:
    return "#EXT-X-ENDLIST" in (files / "stream.m3u8").read_text()


def encoders_below(process: psutil.Process) -> list[psutil.Process]:
    return [each for each in children_of(process) if name_of(each) == "ffmpeg"]


@pytest.mark.parametrize("name", SCREENED)
async def test_a_browser_with_a_screen_is_recorded_from_it(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    session = await record(client, name, "blue")
    files = files_of(deployment, session)

    await eventually(lambda: has_segment(files), DEADLINE)
    (screen,) = screens_below(await node_of(store, session, deployment))
    assert not lets_in(place_of(screen)), "any program of the machine sees its screen"
    await client.call("POST", f"/session/{session}/remuda/message", {"message": "seen"})
    await client.close(session)
    await eventually(lambda: is_complete(files), DEADLINE)

    video = probe(files / "video.mp4")
    assert (video.width, video.height, video.rate) == (1280, 720, "10/1")
    assert video.duration >= 4
    assert is_like(colours(files / "video.mp4")[-1], BLUE), "it ends with what the client saw last"
    assert "seen" in (files / "messages.vtt").read_text()


async def test_a_session_that_ends_at_once_has_a_picture(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await record(client)

    await client.close(session)

    await eventually(lambda: has_ended(store, session), DEADLINE)
    assert "RFAILURE" not in dict(await log_of(store, session))
    assert is_like(colours(files_of(deployment, session) / "video.mp4")[-1], RED)


async def test_a_session_outlives_its_encoder(store: Store, client: Client, deployment: Deployment) -> None:
    session = await record(client)
    files = files_of(deployment, session)
    await eventually(lambda: has_segment(files), DEADLINE)
    (encoder,) = encoders_below(await node_of(store, session, deployment))

    encoder.kill()

    async def is_told() -> bool:
        return "RFAILURE" in dict(await log_of(store, session))

    await eventually(is_told, DEADLINE)
    assert "ffmpeg ended with status -9" in dict(await log_of(store, session))["RFAILURE"]["message"]
    assert (await client.title(session)).status == 200
    assert await client.call("POST", f"/session/{session}/remuda/message", {"message": "x"}) == Reply(
        200, None
    )
    assert await client.close(session) == Reply(200, None)
    await eventually(lambda: has_ended(store, session), DEADLINE)
    assert is_complete(files)
    assert probe(files / "stream.m3u8").duration >= 4


async def test_an_encoder_that_cannot_write_ends_nothing_but_the_video(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await record(client)
    files = files_of(deployment, session)
    await eventually(lambda: has_segment(files), DEADLINE)
    (encoder,) = encoders_below(await node_of(store, session, deployment))

    # As on a full disk, but on nobody else's.
    size = (files / "video.mp4").stat().st_size
    # By its own user: for root to do it, the kernel asks for a capability that a container may lack.
    uid, gid = encoder.uids().real, encoder.gids().real
    limit = ["prlimit", f"--pid={encoder.pid}", f"--fsize={size}"]
    await asyncio.to_thread(subprocess.run, limit, user=uid, group=gid, extra_groups=[], check=True)

    async def is_told() -> bool:
        return "RFAILURE" in dict(await log_of(store, session))

    await eventually(is_told, DEADLINE)
    assert (await client.title(session)).status == 200
    await client.close(session)
    await eventually(lambda: is_complete(files), DEADLINE)
    # Not the first frame: that may still show the empty page.
    assert is_like(colours(files / "stream.m3u8")[-1], RED)


@pytest.mark.parametrize("name", ["chrome", *SCREENED])
async def test_the_video_of_a_killed_node_plays_and_is_indexed(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    session = await record(client, name)
    files = files_of(deployment, session)
    await eventually(lambda: has_segment(files), DEADLINE)
    node = await node_of(store, session, deployment)
    encoders = encoders_below(node)

    os.kill(node.pid, signal.SIGKILL)

    await eventually(lambda: has_ended(store, session), DEADLINE)
    await eventually(lambda: is_complete(files), DEADLINE)
    await eventually(lambda: are_gone(encoders), DEADLINE)
    assert probe(files / "stream.m3u8").duration >= 4
    # Fragments, so the file too plays wherever it was cut off.
    assert is_like(colours(files / "video.mp4")[-1], RED)
    assert await store.get(grid.SESSION_STORAGE(session)) is not None
    known = {each.path.name for each in await indexed(files.parent, session)}
    assert {"video.m3u8", "stream.m3u8", "messages.vtt"} <= known


async def test_where_ffmpeg_is_missing_the_client_hears_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("h")
    commands = home / "bin"
    commands.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if program.name != "ffmpeg" and not (commands / program.name).exists():
                (commands / program.name).symlink_to(program)
    assert shutil.which("ffmpeg", path=str(commands)) is None

    with running_herd(
        home / "data", "--slots", "1", environ={"PATH": str(commands), "REMUDA_RECORD": "true"}
    ) as herd:
        async with Store(herd.redis_url) as store, open_client(store) as client:
            reply = await client.ask(browserName=LIGHTEST)
            session = SessionId(reply.value["sessionId"])

            assert reply.value["capabilities"]["se:recordVideo"] is False
            told = reply.value["capabilities"]["remuda:video"]
            assert told == {"problem": "ffmpeg is not installed on the node's machine"}
            assert dict(await log_of(store, session))["RFAILURE"]["message"] == told["problem"]
            assert await client.close(session) == Reply(200, None)
