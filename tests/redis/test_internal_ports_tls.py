"""Internal ports that speak TLS, and a front door that connects to them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certificates import CertificateAuthority
from chaos import CHROME, FakeDriver
from configs import make_config
from credentials import herd_headers
from grids import own_slots
from remuda.base.ids import NodeId
from remuda.cli.rooms import ROOMS
from remuda.fleet.internal import InternalTls, internal_hosts_of
from remuda.fleet.role import Life, Role
from remuda.fleet.room import Surroundings, role_kinds
from remuda.gateway import lookup
from remuda.gateway.role import Gateway
from remuda.grid.node import node as node_module
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.keyspace import grid
from remuda.keyspace.fleet import ROLE
from remuda.store import Store
from sweeping import O1, pending
from waiting import eventually
from web_states import running

DEADLINE = 10.0
NAMES = ("manager", "api", "storage")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def options(authority: CertificateAuthority) -> dict[str, str]:
    return authority.issue("127.0.0.1")


@asynccontextmanager
async def serving(store: Store, tls: InternalTls, directory: Path) -> AsyncIterator[dict[str, Role]]:
    """These roles in one process, by their names."""
    on = Surroundings(store, make_config(data=directory), ROOMS, tls)
    roles = {name: role_kinds(ROOMS)[name].make(on) for name in NAMES}
    life, ready = Life(store, list(roles.values()), drain_timeout=0.0), asyncio.Event()
    life.on_ready = ready.set
    living = asyncio.create_task(life.run())
    try:
        await ready.wait()
        yield roles
    finally:
        life.ask_stop_at_once()
        await living


@asynccontextmanager
async def front_door(store: Store, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    config = make_config(port=0, **options)
    gateway = Gateway(store, config, tls=InternalTls.of(config))
    async with running(gateway), aiohttp.ClientSession(f"http://{gateway.address}") as client:
        yield client


async def test_the_front_door_reaches_all_that_speak_tls(
    store: Store, tmp_path: Path, options: dict[str, str]
) -> None:
    tls = InternalTls.of(make_config(**options))
    async with serving(store, tls, tmp_path) as roles, front_door(store, **options) as client:
        async with client.get("/api/roles") as answer:
            shown = {each["name"]: each["scheme"] for each in (await answer.json())["roles"]}
            assert shown == dict.fromkeys(NAMES, "https")
        async with client.get(f"/storage/{roles['storage'].id}/nothing") as answer:
            assert answer.status == 404
        async with client.post("/session", json={"capabilities": {}}) as answer:
            assert "no orchestrator is in service" in (await answer.json())["value"]["message"]

        for name, role in roles.items():
            assert not await knows_plain_http(role.address), name
        assert await store.get(grid.MANAGER_SCHEME(roles["manager"].id)) == "https"
        assert await store.hget(ROLE(roles["api"].id), "scheme") == "https"


async def knows_plain_http(address: str) -> bool:
    """Whether a request without TLS gets as far as the question for the secret."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        try:
            return b" 403 " in await reader.read()
        except ConnectionError:
            return False
        finally:
            writer.close()


async def test_a_node_speaks_tls_and_its_record_says_so(store: Store, options: dict[str, str]) -> None:
    config = make_config(**options)
    await own_slots(store, O1, 1)
    session = await pending(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_module, "Driver", FakeDriver)
        hosts = internal_hosts_of(config, store, InternalTls.of(config))
        node = Node(store, NodeId("node"), CHROME, hosts=hosts)
        node.warm_up()
        holding = asyncio.create_task(node.hold(Assignment(session, 0)))
        try:
            await eventually(lambda: store.exists(grid.SESSION_UPSTREAM(session)))
            upstream = await store.hgetall(grid.SESSION_UPSTREAM(session))
            path = f"/session/{session}/se/files"
            async with front_door(store, **options) as client, client.get(path) as told:
                assert "se:downloadsEnabled" in (await told.json())["value"]["message"]

            assert await store.get(grid.SESSION_SCHEME(session)) == "https"
            assert not await knows_plain_http(f"{upstream['host']}:{upstream['port']}")
        finally:
            node.end(Ending("CLOSED"))
            await holding


async def test_ports_without_tls_speak_plain_http(store: Store, tmp_path: Path) -> None:
    async with serving(store, InternalTls(), tmp_path) as roles:
        assert not await store.exists(grid.MANAGER_SCHEME(roles["manager"].id))
        for name, role in roles.items():
            assert await knows_plain_http(role.address), name


async def test_ports_that_cannot_be_verified_are_refused_in_words(
    store: Store, tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the test may take: a restart does not help, so none is waited for.
    monkeypatch.setattr(lookup, "WAIT_FOR", 3600.0)
    other = CertificateAuthority(tmp_path / "other")
    tls = InternalTls.of(make_config(**options))
    async with serving(store, tls, tmp_path):
        for trust, reason in (
            ({"internal_tls_ca": other.ca}, "the certificate is not trusted: unable to get local issuer"),
            ({}, "speaks TLS, and this process has no internal_tls_ca"),
        ):
            async with front_door(store, **trust) as client:
                for _ in range(2):
                    async with client.get("/api/roles") as answer:
                        assert answer.status == 502
                        assert reason in (await answer.json())["error"]["message"]
                async with client.post("/session", json={"capabilities": {}}) as answer:
                    told = (await answer.json())["value"]
                    assert (answer.status, told["error"]) == (500, "session not created")
                    assert reason in told["message"]


async def test_a_new_certificate_is_shown_by_all_without_a_restart(
    store: Store, tmp_path: Path, authority: CertificateAuthority
) -> None:
    options = authority.issue("127.0.0.1", name="renewed")
    tls = InternalTls.of(make_config(**options))
    assert tls.certificate is not None
    trusting = ssl.create_default_context(cafile=authority.ca)
    async with serving(store, tls, tmp_path) as roles, aiohttp.ClientSession() as client:

        async def shown(role: Role) -> bytes | None:
            host, _, port = role.address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
            certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return certificate

        before = {await shown(role) for role in roles.values()}
        authority.issue("127.0.0.1", name="renewed")
        await tls.certificate.look()
        after = {await shown(role) for role in roles.values()}

        assert len(before) == len(after) == 1
        assert before != after
        url = f"https://{roles['api'].address}/api/roles"
        async with client.get(url, headers=await herd_headers(store), ssl=trusting) as answer:
            assert answer.status == 200
