"""The ways to a Redis: TCP, password, TLS, and Sentinel with a fail-over."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.base.errors import Misconfigured, StoreUnavailable
from remuda.keyspace.fleet import BELL, LEASE
from remuda.store import Store, Subscription
from remuda.store import sentinel as sentinel_module
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


@pytest.mark.parametrize("lacking", ["-@scripting &*", "resetchannels"])
async def test_a_user_without_the_rights_of_a_role_is_found_at_its_start(lacking: str) -> None:
    with server() as found:
        async with Store(found.url) as admin:
            await admin.send("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", *lacking.split())

        async with Store(found.url.replace("unix://", "unix://ann:pw@")) as store:
            with pytest.raises(Misconfigured, match=r"NOPERM .* its ACL must allow") as caught:
                await store.check_rights()

    assert "pw@" not in caught.value.message


async def test_what_is_no_sentinel_is_told_apart() -> None:
    port = free_port()
    with server("--port", str(port)), pytest.raises(StoreUnavailable, match="it is not a Sentinel"):
        await Store(f"redis+sentinel://127.0.0.1:{port}/main").__aenter__()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_cluster_is_refused_before_the_first_script_fails(engine: str) -> None:
    refused = pytest.raises(StoreUnavailable, match="it is a Redis Cluster; use a single Redis")
    with server("--cluster-enabled", "yes", engine=engine) as cluster, refused:
        await Store(cluster.url).__aenter__()


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
        with pytest.raises(StoreUnavailable, match=r"certificate is not trusted: .* with \?ca=FILE$"):
            await Store(f"rediss://localhost:{port}").__aenter__()
        async with Store(f"rediss://localhost:{port}?verify=no") as store:
            assert await store.send("PING") == "PONG"


async def test_a_redis_that_speaks_tls_and_one_that_does_not_are_told_apart(certificates: Path) -> None:
    with tls_server(certificates, clients="no") as port, pytest.raises(StoreUnavailable, match="expect TLS"):
        await Store(f"redis://127.0.0.1:{port}").__aenter__()

    port = free_port()
    with server("--port", str(port)), pytest.raises(StoreUnavailable, match="may not speak TLS"):
        await Store(f"rediss://127.0.0.1:{port}", timeout=0.5).__aenter__()


PATIENT = 30.0


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits longer than a second for a Sentinel: on a busy machine it needs that to write its config."""
    monkeypatch.setattr(sentinel_module, "SENTINEL_TIMEOUT", PATIENT)


@contextmanager
def sentinel(*options: str, master_port: int = 1) -> Iterator[int]:
    """A Sentinel without peers that watches `main`; its port."""
    port = free_port()
    watch = f"sentinel monitor main 127.0.0.1 {master_port} 1\nsentinel auth-pass main pw\n"
    with server("--port", str(port), *options, engine=DEBIAN, sentinel_config=watch):
        yield port


@pytest.mark.usefixtures("patience")
async def test_a_locked_sentinel_is_asked_with_its_own_password() -> None:
    master_port = free_port()
    with (
        server("--port", str(master_port), "--requirepass", "pw", engine=DEBIAN),
        sentinel("--requirepass", "s@cret", master_port=master_port) as port,
    ):
        url = f"redis+sentinel://:pw@127.0.0.1:{port}/main?sentinel_password=s%40cret"

        async with Store(url, timeout=PATIENT) as store:
            assert await store.set(STRING, "x") == "OK"


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "requires a password; add sentinel_password"),
        ("?sentinel_password=wrong", "refused the sentinel_password"),
    ],
)
async def test_a_locked_sentinel_refuses_others_in_words(query: str, problem: str) -> None:
    with sentinel("--requirepass", "right") as port, pytest.raises(StoreUnavailable, match=problem) as caught:
        await Store(f"redis+sentinel://127.0.0.1:{port}/main{query}", timeout=PATIENT).__aenter__()

    assert "wrong" not in caught.value.message


@pytest.mark.usefixtures("patience")
async def test_master_and_sentinel_are_asked_over_tls(certificates: Path) -> None:
    port, cert, key = free_port(), str(certificates / "cert.pem"), str(certificates / "key.pem")
    tls = ("--port", "0", "--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key)
    clients = ("--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
    with (
        tls_server(certificates, clients="no") as master_port,
        sentinel(*tls, *clients, master_port=master_port),
    ):
        url = f"rediss+sentinel://127.0.0.1:{port}/main?ca={cert}&sentinel_tls=yes"
        async with Store(url, timeout=PATIENT) as store:
            assert await store.send("PING") == "PONG"


async def test_a_silent_sentinel_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/main"

        with pytest.raises(StoreUnavailable, match="has not answered for 1 s"):
            await Store(url).__aenter__()


@pytest.mark.usefixtures("patience")
async def test_a_replica_that_a_sentinel_calls_the_master_is_refused() -> None:
    replica_port = free_port()
    follow = ("--replicaof", "127.0.0.1", str(free_port()))
    with (
        server("--port", str(replica_port), *follow, engine=DEBIAN),
        sentinel(master_port=replica_port) as port,
        pytest.raises(StoreUnavailable, match="reports it as the master of 'main', but it is a replica"),
    ):
        await Store(f"redis+sentinel://127.0.0.1:{port}/main", timeout=PATIENT).__aenter__()


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

        with pytest.raises(StoreUnavailable, match="no Sentinel knows the master of 'other'"):
            await store.__aenter__()


async def test_sentinels_that_are_not_there_cost_no_time() -> None:
    dead = ",".join(f"127.0.0.1:{free_port()}" for _ in range(5))

    async with asyncio.timeout(3):
        with pytest.raises(StoreUnavailable, match="no Sentinel knows the master"):
            await Store(f"redis+sentinel://{dead}/main").__aenter__()
