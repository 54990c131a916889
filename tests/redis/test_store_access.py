"""The ways to a Redis: TCP, password, TLS, and Sentinel with a fail-over."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.base.errors import StoreUnavailable
from remuda.keyspace.fleet import BELL, LEASE
from remuda.store import Store, Subscription
from servers import DEBIAN, ENGINES, Server, free_port, server
from waiting import eventually

STRING = LEASE("test")


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_password_opens_a_locked_redis_over_tcp(engine: str) -> None:
    port = free_port()
    with server("--port", str(port), "--requirepass", "p@ss/word", engine=engine):
        async with Store(f"redis://:p%40ss%2Fword@127.0.0.1:{port}/2") as store:
            assert await store.set(STRING, "x") == "OK"
            assert "db=2" in await store.send("CLIENT", "INFO")


@pytest.mark.parametrize(("credentials", "problem"), [("", "NOAUTH"), (":wrong@", "WRONGPASS")])
async def test_a_locked_redis_refuses_others_and_the_error_shows_no_password(
    credentials: str, problem: str
) -> None:
    with server("--requirepass", "right") as locked, pytest.raises(StoreUnavailable, match=problem) as caught:
        await Store(locked.url.replace("unix://", f"unix://{credentials}")).__aenter__()

    assert "wrong" not in caught.value.message


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_cluster_is_refused_before_the_first_script_fails(engine: str) -> None:
    refused = pytest.raises(StoreUnavailable, match="it is a Redis Cluster; take one Redis")
    with server("--cluster-enabled", "yes", engine=engine) as cluster, refused:
        await Store(cluster.url).__aenter__()


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


@contextmanager
def tls_server(certificates: Path, *, clients: str) -> Iterator[int]:
    """A Redis that speaks TLS; its port."""
    port = free_port()
    cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    options = ("--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key)
    with server(*options, "--tls-ca-cert-file", cert, "--tls-auth-clients", clients, engine=DEBIAN):
        yield port


async def test_tls_with_a_known_authority(certificates: Path) -> None:
    with tls_server(certificates, clients="no") as port:
        async with Store(f"rediss://localhost:{port}?ca={certificates}/cert.pem") as store:
            replies = [store.send("ECHO", number) for number in range(100)]
            assert [await reply for reply in replies] == [str(number) for number in range(100)]


async def test_tls_with_a_certificate_of_our_own(certificates: Path) -> None:
    with tls_server(certificates, clients="yes") as port:
        files = f"ca={certificates}/cert.pem&cert={certificates}/cert.pem&key={certificates}/key.pem"
        async with Store(f"rediss://127.0.0.1:{port}?{files}") as store:
            assert await store.send("PING") == "PONG"


async def test_tls_with_an_unknown_authority_is_refused_unless_asked_for(certificates: Path) -> None:
    with tls_server(certificates, clients="no") as port:
        with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await Store(f"rediss://localhost:{port}").__aenter__()
        async with Store(f"rediss://localhost:{port}?verify=no") as store:
            assert await store.send("PING") == "PONG"


@contextmanager
def replicated() -> Iterator[tuple[Server, Server, int]]:
    """A master, its replica, and the port of a Sentinel that watches them."""
    master_port, replica_port, sentinel_port = free_port(), free_port(), free_port()
    auth = ("--requirepass", "pw", "--masterauth", "pw", "--repl-diskless-sync-delay", "0")
    follow = ("--replicaof", "127.0.0.1", str(master_port))
    watch = (
        f"sentinel monitor main 127.0.0.1 {master_port} 1\n"
        "sentinel auth-pass main pw\n"
        "sentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 3000\n"
    )
    with (
        server("--port", str(master_port), *auth, engine=DEBIAN) as master,
        server("--port", str(replica_port), *follow, *auth, engine=DEBIAN) as replica,
        server("--port", str(sentinel_port), engine=DEBIAN, sentinel_config=watch),
    ):
        yield master, replica, sentinel_port


async def test_after_a_fail_over_the_store_finds_the_new_master() -> None:
    with replicated() as (master, replica, sentinel_port):
        url = f"redis+sentinel://:pw@127.0.0.1:1,127.0.0.1:{sentinel_port}/main"
        async with Store(url) as store, Store(f"unix://:pw@{replica.socket}") as second:
            with store.subscribe(BELL("test")) as rings:
                await store.set(STRING, "before")
                await eventually(lambda: second.get(STRING))
                await eventually(lambda: _watches_replica(sentinel_port))

                master.kill()
                await eventually(lambda: _writes(store), 30)

                assert await second.get(STRING) == "after"
                await second.publish(BELL("test"), "from the new master")
                assert "from the new master" in await _heard(rings)


async def _watches_replica(sentinel_port: int) -> bool:
    command = ["redis-cli", "-p", str(sentinel_port), "sentinel", "replicas", "main"]
    listed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await listed.communicate()
    return b"master-link-status\nok" in output


async def _writes(store: Store) -> bool:
    try:
        return await store.set(STRING, "after") == "OK"
    except StoreUnavailable:
        return False


async def _heard(rings: Subscription) -> list[str]:
    heard: list[str] = []
    while not heard:
        heard += await rings.wait(10)
    return heard


async def test_a_service_that_no_sentinel_knows_is_unavailable() -> None:
    with replicated() as (_, _, sentinel_port):
        store = Store(f"redis+sentinel://127.0.0.1:{sentinel_port}/other")

        with pytest.raises(StoreUnavailable, match="no Sentinel names the master of 'other'"):
            await store.__aenter__()


async def test_sentinels_that_are_not_there_cost_no_time() -> None:
    dead = ",".join(f"127.0.0.1:{free_port()}" for _ in range(5))

    async with asyncio.timeout(3):
        with pytest.raises(StoreUnavailable, match="no Sentinel names the master"):
            await Store(f"redis+sentinel://{dead}/main").__aenter__()
