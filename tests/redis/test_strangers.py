"""A Redis that answers without a password is found out, and so is a Sentinel."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.base.errors import Misconfigured
from remuda.fleet.room import CheckState
from remuda.ops.doctor import look_at_password
from remuda.store import Store, sentinel, strangers
from remuda.store.strangers import check_strangers
from remuda.store.url import parse_url
from servers import DEBIAN, free_port, server

PATIENT = 30.0
ANSWERS = "answers without a password: .* with --insecure-redis if"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a server takes long to answer, and one that does not answer is not judged."""
    monkeypatch.setattr(sentinel, "SENTINEL_TIMEOUT", PATIENT)
    monkeypatch.setattr(strangers, "ANSWER_TIMEOUT", PATIENT)


async def test_an_open_redis_is_refused_by_socket() -> None:
    with server() as redis, pytest.raises(Misconfigured, match=f"Redis at {redis.socket} {ANSWERS}"):
        await check_strangers(parse_url(redis.url))


async def test_an_open_redis_is_refused_by_port() -> None:
    port = free_port()
    with (
        server("--port", str(port)),
        pytest.raises(Misconfigured, match=f"Redis at 127.0.0.1:{port} {ANSWERS}"),
    ):
        await check_strangers(parse_url(f"redis://127.0.0.1:{port}"))


async def test_a_redis_that_lets_some_users_in_without_a_password_is_refused() -> None:
    with server() as redis:
        async with Store(redis.url) as admin:
            await admin.send("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
            await admin.send("ACL", "SETUSER", "default", "-@all", "+hset")

        with pytest.raises(Misconfigured, match=ANSWERS):
            await check_strangers(parse_url(f"unix://ann:pw@{redis.socket}"))


async def test_a_redis_with_a_password_is_accepted(embedded_url: str) -> None:
    port = free_port()
    with server("--port", str(port), password="pw") as redis:
        await check_strangers(parse_url(embedded_url))
        await check_strangers(parse_url(redis.url))
        await check_strangers(parse_url(f"redis://:pw@127.0.0.1:{port}"))


@pytest.mark.parametrize("needs_certificate", [False, True])
async def test_an_open_redis_behind_tls_is_refused_unless_it_asks_for_a_certificate(
    certificates: Path, *, needs_certificate: bool
) -> None:
    port = free_port()
    cert, key = certificates / "cert.pem", certificates / "key.pem"
    options = ("--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
    asks = ("--tls-auth-clients", "yes" if needs_certificate else "no")
    url = parse_url(f"rediss://localhost:{port}?ca={cert}&cert={cert}&key={key}")

    with server(*map(str, options), *asks, engine=DEBIAN):
        if needs_certificate:
            await check_strangers(url)
        else:
            with pytest.raises(Misconfigured, match=ANSWERS):
                await check_strangers(url)


@contextmanager
def watched(*sentinel_options: str) -> Iterator[int]:
    """A Redis with a password and a Sentinel that watches it; the Sentinel's port."""
    port, sentinel_port = free_port(), free_port()
    watch = f"sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main pw\n"
    with (
        server("--port", str(port), engine=DEBIAN, password="pw"),
        server("--port", str(sentinel_port), *sentinel_options, engine=DEBIAN, sentinel_config=watch),
    ):
        yield sentinel_port


async def test_an_open_sentinel_is_refused() -> None:
    with watched() as port, pytest.raises(Misconfigured, match=f"The Sentinel at 127.0.0.1:{port} {ANSWERS}"):
        await check_strangers(parse_url(f"redis+sentinel://:pw@127.0.0.1:1,127.0.0.1:{port}/main"))


async def test_a_sentinel_with_a_password_is_accepted() -> None:
    with watched("--requirepass", "other") as port:
        await check_strangers(
            parse_url(f"redis+sentinel://:pw@127.0.0.1:{port}/main?sentinel_password=other")
        )


@pytest.mark.parametrize("length", [13, 14, 25, 26])
async def test_a_socket_whose_address_is_as_long_as_that_of_an_ip_address_is_refused(length: int) -> None:
    path = "/" + "x" * (length - 1)

    with pytest.raises(Misconfigured, match=f"has {length} bytes. .* Choose a path that is longer"):
        await check_strangers(parse_url(f"unix://{path}"))


@pytest.mark.parametrize(("is_required", "state"), [(True, CheckState.FAIL), (False, CheckState.WARN)])
async def test_the_doctor_finds_an_open_redis(is_required: bool, state: CheckState) -> None:
    with server() as redis:
        (check,) = await look_at_password(redis.url, is_required=is_required)

    assert check.state is state
    assert "answers without a password" in check.found


async def test_the_doctor_is_content_with_a_password(embedded_url: str) -> None:
    (check,) = await look_at_password(embedded_url, is_required=True)

    assert check.state is CheckState.OK
