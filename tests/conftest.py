"""What all tests share: the event loop that production runs on, and a real Redis per test process."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from hypothesis import settings
from playwright.async_api import Playwright, async_playwright

import servers
from remuda.store import Store
from remuda.store.embedded import embedded_redis

# The same examples in every run: a test that fails by chance helps nobody. To look for new ones:
# HYPOTHESIS_PROFILE=explore make test ARGS="-k fuzz".
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=200)
settings.register_profile("explore", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Some machines forbid it. But tests start hundreds of processes, and each would compile the whole program.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The same for Playwright's clients, each of which starts a driver in Node.
os.environ.setdefault("NODE_COMPILE_CACHE", str(Path(__file__).parent.parent / ".pytest_cache/node"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spares the garbage collector the tests themselves, which stay, and most of its other looks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups come first. One test process runs each as a whole: begun last, it would run alone."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands tests to the processes; see `scheduling.py`."""
    from scheduling import Scheduling

    return Scheduling(config, log)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded Redis that lives as long as this test process."""
    # A runner of its own: the loop of a test ends with the test.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = embedded_redis(tmp_path_factory.mktemp("redis"))
        yield runner.run(server.__aenter__())
        runner.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def debian_url() -> Iterator[str]:
    """The URL of Debian's Redis, which lives as long as this test process."""
    with servers.server(engine=servers.DEBIAN) as server:
        yield server.url


@pytest.fixture
def redis_url(embedded_url: str) -> str:
    """The URL of an empty Redis: no test finds what another has left."""
    servers.empty(embedded_url)
    return embedded_url


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """A connection to an empty Redis."""
    async with Store(redis_url) as store:
        yield store


@pytest.fixture(params=servers.ENGINES)
def any_url(request: pytest.FixtureRequest) -> str:
    """The URL of the embedded Redis, then of Debian's, which is empty."""
    name = "embedded_url" if request.param == servers.EMBEDDED else "debian_url"
    url: str = request.getfixturevalue(name)
    servers.empty(url)
    return url


@pytest.fixture
async def any_store(any_url: str) -> AsyncIterator[Store]:
    """A connection to an empty Redis, for what must hold with the embedded server and with Debian's."""
    async with Store(any_url) as store:
        yield store


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    """A stock client of Playwright, whose driver lives as long as this test process.

    It belongs to the loop of the session. Tests with it run there too, and close what they connect to.
    """
    async with async_playwright() as playwright:
        yield playwright


@pytest.fixture
def server() -> Iterator[servers.Server]:
    """A Redis server of the test's own, to pause, kill and restart."""
    with servers.server(password="pw") as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the key and the self-signed certificate of `localhost`."""
    directory = tmp_path_factory.mktemp("certificates")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *subject, "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    return directory
