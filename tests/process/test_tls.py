"""TLS at the front door, by real clients on real sockets."""

import asyncio
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

import pytest

from configs import make_config
from herds import REMUDA, new_herd
from relaying import DEADLINE, FAST, OK, Line, Upstream, Witness, render_error
from remuda.base.certificate import Certificate
from remuda.base.errors import Misconfigured
from remuda.fleet.relay import Answer, Forward, Plan, Relay, Request
from remuda.fleet.relay import tls as relay_tls
from remuda.fleet.relay.client import Client
from remuda.gateway.listener import check_options
from waiting import eventually

BODY = b"x" * 3_000_000
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
Result = TypeVar("Result")
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def make_certificate(directory: Path, name: str = "herd") -> tuple[str, str]:
    """A certificate for 127.0.0.1 and this name, and its key."""
    directory.mkdir(exist_ok=True)
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def expire(cert: str, key: str) -> None:
    """Has this certificate end a day ago."""
    renew = ["openssl", "x509", "-in", cert, "-signkey", key, "-days", "-1", "-out", cert]
    subprocess.run(renew, check=True, capture_output=True)


class Kit:
    """A relay that speaks TLS in front of a scripted upstream."""

    def __init__(self, relay: Relay, certificate: Certificate, port: int, upstream: Upstream) -> None:
        self.relay = relay
        self.certificate = certificate
        self.port = port
        self.upstream = upstream

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(DEADLINE):
            return await asyncio.open_connection("127.0.0.1", self.port, ssl=context)


@asynccontextmanager
async def kit(cert: str, key: str) -> AsyncIterator[Kit]:
    upstream, certificate = Upstream(), Certificate(cert, key)
    async with upstream.listening() as address:

        def route(request: Request) -> Plan:
            return Answer(413) if request.target == "/refused" else Forward(address)

        relay = Relay(route, render_error, guard=None, observer=Witness(), limits=FAST)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: relay.tls_protocol(certificate.context), "127.0.0.1", 0)
        try:
            yield Kit(relay, certificate, server.sockets[0].getsockname()[1], upstream)
        finally:
            server.close()
            relay.close()
            await relay.emptied(DEADLINE)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Kit]:
    async with kit(*make_certificate(tmp_path)) as found:
        yield found


@pytest.fixture
def trusting(tmp_path: Path, door: Kit) -> ssl.SSLContext:
    """A client that trusts this certificate only."""
    return ssl.create_default_context(cafile=tmp_path / "cert.pem")


@contextmanager
def plain(door: Kit) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", door.port), timeout=DEADLINE) as sock:
        yield sock


async def read(reader: asyncio.StreamReader, size: int = -1) -> bytes:
    async with asyncio.timeout(DEADLINE):
        return await (reader.read() if size < 0 else reader.readexactly(size))


# Requests


async def test_requests_go_through_one_after_the_other(door: Kit, trusting: ssl.SSLContext) -> None:
    reader, writer = await door.connect(trusting)

    for _ in range(3):
        writer.write(GET)
        assert await read(reader, len(OK)) == OK
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert len(door.upstream.lines) == 1
    writer.close()


async def test_a_client_is_told_to_speak_http_1(door: Kit, trusting: ssl.SSLContext) -> None:
    trusting.set_alpn_protocols(["h2", "http/1.1"])

    _, writer = await door.connect(trusting)

    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_that_are_still_safe_are_spoken(
    door: Kit, trusting: ssl.SSLContext, newest: ssl.TLSVersion
) -> None:
    trusting.maximum_version = newest
    reader, writer = await door.connect(trusting)

    writer.write(GET)

    assert await read(reader, len(OK)) == OK
    writer.close()


def test_older_versions_are_not_spoken(tmp_path: Path) -> None:
    assert Certificate(*make_certificate(tmp_path)).context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_large_bodies_pass_both_ways(door: Kit, trusting: ssl.SSLContext) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY

    def reply(line: Line) -> None:
        if line.received.endswith(BODY[-10:]) and len(line.received) > len(BODY):
            line.transport.write(answer)

    door.upstream.reply = reply
    reader, writer = await door.connect(trusting)
    writer.write(head + BODY)

    assert await read(reader, len(answer)) == answer
    writer.close()


async def test_a_client_that_reads_nothing_holds_its_upstream_back(
    door: Kit, trusting: ssl.SSLContext
) -> None:
    size = 60_000_000

    def reply(line: Line) -> None:
        line.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"y" * size)

    door.upstream.reply = reply
    reader, writer = await door.connect(trusting)
    transport = cast(asyncio.Transport, writer.transport)
    transport.pause_reading()
    writer.write(GET)

    async def is_held_back() -> bool:
        waiting = door.upstream.lines and door.upstream.lines[0].transport.get_write_buffer_size()
        return bool(waiting) and any(getattr(each, "is_paused", False) for each in door.relay.connections)

    await eventually(is_held_back, DEADLINE)
    transport.resume_reading()
    assert len((await read(reader, size)).strip(b"y")) < 100
    writer.close()


async def test_an_answer_to_half_a_request_arrives_before_the_end(
    door: Kit, trusting: ssl.SSLContext
) -> None:
    reader, writer = await door.connect(trusting)
    writer.write(b"POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b"z" * 500_000)

    answered = await read(reader)

    assert answered.startswith(b"HTTP/1.1 413 ")
    writer.close()


# WebSockets


async def test_a_websocket_is_a_pipe_until_one_side_ends(door: Kit, trusting: ssl.SSLContext) -> None:
    def reply(line: Line) -> None:
        if line.received.endswith(b"bye"):
            line.transport.write(b"so long")
            line.transport.close()
        elif line.received.endswith(b"\r\n\r\n"):
            line.transport.write(SWITCHING + b"early")
        else:
            line.transport.write(b"more")

    door.upstream.reply = reply
    reader, writer = await door.connect(trusting)
    writer.write(UPGRADE)
    assert await read(reader, len(SWITCHING) + 5) == SWITCHING + b"early"

    writer.write(b"hello")
    assert await read(reader, 4) == b"more"
    writer.write(b"bye")

    assert await read(reader) == b"so long"
    writer.close()
    await eventually(lambda: _is_empty(door), DEADLINE)


async def _is_empty(door: Kit) -> bool:
    return not door.relay.connections


async def test_a_client_that_leaves_its_websocket_is_noticed(door: Kit, trusting: ssl.SSLContext) -> None:
    door.upstream.reply = lambda line: line.transport.write(SWITCHING)
    reader, writer = await door.connect(trusting)
    writer.write(UPGRADE)
    await read(reader, len(SWITCHING))

    writer.close()

    await eventually(lambda: _is_empty(door), DEADLINE)
    assert door.upstream.lines[0].is_closed


async def test_a_drain_ends_websockets_with_a_word(door: Kit, trusting: ssl.SSLContext) -> None:
    door.upstream.reply = lambda line: line.transport.write(SWITCHING)
    reader, writer = await door.connect(trusting)
    writer.write(UPGRADE)
    await read(reader, len(SWITCHING))

    draining = asyncio.create_task(door.relay.drain(0.1))

    assert await read(reader, 4) == b"\x88\x02\x03\xe9"
    writer.close()
    await draining


# Those that speak no TLS


@pytest.mark.parametrize("target", [b"/", b"/session"])
async def test_plain_http_is_told_that_https_is_spoken(door: Kit, target: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" % target)

    answered = await read(reader)

    assert answered.startswith(b"HTTP/1.1 400 ")
    assert b"TlsRequired" in answered
    assert not door.upstream.lines
    writer.close()


async def test_a_silent_client_is_let_go(door: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_tls, "HANDSHAKE_TIMEOUT", 0.1)

    with plain(door) as sock:
        assert await asyncio.to_thread(sock.recv, 1) == b""
    await eventually(lambda: _is_empty(door), DEADLINE)


async def test_a_handshake_that_stops_half_way_is_let_go(door: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_tls, "HANDSHAKE_TIMEOUT", 0.1)

    with plain(door) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00")
        assert await asyncio.to_thread(sock.recv, 1) == b""


async def test_a_client_that_does_not_trust_the_certificate_is_gone(door: Kit) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await door.connect(ssl.create_default_context())

    await eventually(lambda: _is_empty(door), DEADLINE)


async def test_garbage_after_the_handshake_ends_the_connection(door: Kit, tmp_path: Path) -> None:
    def spoil() -> bytes:
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        with (
            socket.create_connection(("127.0.0.1", door.port), timeout=DEADLINE) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped,
        ):
            os.write(wrapped.fileno(), b"GET / HTTP/1.1\r\n\r\n" * 10)
            try:
                return wrapped.recv(100)
            except OSError:
                return b""

    assert await asyncio.to_thread(spoil) == b""
    await eventually(lambda: _is_empty(door), DEADLINE)


# Those that mean no good


async def test_of_too_many_handshakes_the_oldest_is_let_go(
    door: Kit, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_tls, "MOST_HANDSHAKES", 2)
    with plain(door) as first, plain(door) as second:
        second.sendall(b"\x16\x03\x01\x02\x00")
        await eventually(lambda: len(door.relay.handshakes) == 2, DEADLINE)

        reader, writer = await door.connect(trusting)

        assert await asyncio.to_thread(first.recv, 1) == b""
        writer.write(GET)
        assert await read(reader, len(OK)) == OK
        assert len(door.relay.handshakes) == 1
        writer.close()
    await eventually(lambda: _is_empty(door), DEADLINE)
    assert not door.relay.handshakes


async def test_a_client_of_an_older_version_is_gone(door: Kit, trusting: ssl.SSLContext) -> None:
    trusting.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        trusting.minimum_version = ssl.TLSVersion.TLSv1
        trusting.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(ssl.SSLError, match="alert protocol version"):
        await door.connect(trusting)

    await eventually(lambda: _is_empty(door), DEADLINE)


async def test_a_client_without_an_authenticated_cipher_is_gone(door: Kit, trusting: ssl.SSLContext) -> None:
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    trusting.set_ciphers("ECDHE-ECDSA-AES128-SHA256")

    with pytest.raises(ssl.SSLError, match="alert handshake failure"):
        await door.connect(trusting)

    await eventually(lambda: _is_empty(door), DEADLINE)


class ByHand:
    """A client that is asked for each of its records."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._wait_for(self._tls.do_handshake)
        sock.sendall(self._outgoing.read())

    def record(self, data: bytes) -> bytes:
        """These bytes in a record of their own."""
        self._tls.write(data)
        return self._outgoing.read()

    def read(self, size: int) -> bytes:
        answer = b""
        while len(answer) < size:
            answer += self._wait_for(lambda: self._tls.read(65536))
        return answer

    def _wait_for(self, step: Callable[[], Result]) -> Result:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.sock.sendall(self._outgoing.read())
                self._incoming.write(self.sock.recv(65536))


async def test_a_request_in_records_of_one_byte_is_one_request(door: Kit, trusting: ssl.SSLContext) -> None:
    with plain(door) as sock:
        client = await asyncio.to_thread(ByHand, sock, trusting)

        sock.sendall(b"".join(client.record(bytes([byte])) for byte in GET))

        assert await asyncio.to_thread(client.read, len(OK)) == OK
        assert len(door.upstream.lines) == 1


@pytest.mark.parametrize("cut", [1, 5, 20, -20, -1])
async def test_a_request_in_a_record_that_comes_in_pieces_is_one_request(
    door: Kit, trusting: ssl.SSLContext, cut: int
) -> None:
    with plain(door) as sock:
        client = await asyncio.to_thread(ByHand, sock, trusting)
        await eventually(lambda: any(isinstance(each, Client) for each in door.relay.connections), DEADLINE)
        (held,) = door.relay.connections
        record = client.record(GET)

        # Not by the socket, which might join them.
        for piece in (record[:cut], record[cut:]):
            cast(Client, held).transport.data_received(piece)  # type: ignore[attr-defined]

        assert await asyncio.to_thread(client.read, len(OK)) == OK
        assert len(door.upstream.lines) == 1


async def test_garbage_during_an_answer_that_is_not_read_ends_both_sides(
    door: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = 60_000_000
    door.upstream.reply = lambda line: line.transport.write(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"y" * size
    )
    context = ssl.create_default_context(cafile=tmp_path / "cert.pem")

    def begin() -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", door.port), timeout=DEADLINE)
        wrapped = context.wrap_socket(sock, server_hostname="127.0.0.1")
        wrapped.sendall(GET)
        return wrapped

    with await asyncio.to_thread(begin) as client:
        await eventually(lambda: any(getattr(each, "is_paused", False) for each in door.relay.connections))
        os.write(client.fileno(), b"GET / HTTP/1.1\r\n\r\n" * 10)

        await eventually(lambda: _is_empty(door), DEADLINE)

    # The upstream hears of it a moment after the relay has closed.
    await eventually(lambda: door.upstream.lines[0].is_closed, DEADLINE)
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]


@asynccontextmanager
async def one_way(port: int) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A way to the port on which, once the event is set, nothing comes back."""
    is_cut = asyncio.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            if back and is_cut.is_set():
                await asyncio.Event().wait()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        forth = asyncio.create_task(carry(reader, behind[1], back=False))
        back = asyncio.create_task(carry(behind[0], writer, back=True))
        tasks.extend((forth, back))

    tasks: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], is_cut
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_client_that_changes_its_keys_without_end_and_reads_nothing_is_let_go(
    door: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_tls, "MOST_UNREAD", 100)
    async with one_way(door.port) as (port, is_cut):
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-quiet", "-no_ign_eof", "-connect", f"127.0.0.1:{port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        commands = client.stdin
        assert commands is not None
        await eventually(lambda: any(isinstance(each, Client) for each in door.relay.connections), DEADLINE)
        is_cut.set()
        (held,) = door.relay.connections
        # As if what it does not read had filled all buffers on the way.
        cast(Client, held).transport.pause_writing()  # type: ignore[attr-defined]

        async def is_gone() -> bool:
            commands.write(b"K\n")  # Change the keys, and have the other side change its own.
            return await _is_empty(door)

        await eventually(is_gone, DEADLINE)
        client.kill()
        await client.wait()


# The certificate


async def name_of(door: Kit) -> str:
    """The name in the certificate that a new client is shown."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", door.port))
    command = ["openssl", "x509", "-noout", "-subject"]
    found = await asyncio.to_thread(
        subprocess.run, command, input=pem.encode(), capture_output=True, check=True
    )
    return found.stdout.decode().strip().rpartition("=")[2].strip()


async def test_a_new_certificate_is_taken_without_a_restart(door: Kit, tmp_path: Path) -> None:
    reader, writer = await door.connect(ssl.create_default_context(cafile=tmp_path / "cert.pem"))
    keeping = asyncio.create_task(door.certificate.keep_fresh(0.01))

    make_certificate(tmp_path, "renewed")

    async def is_renewed() -> bool:
        return await name_of(door) == "renewed"

    await eventually(is_renewed, DEADLINE)
    writer.write(GET)
    assert await read(reader, len(OK)) == OK
    writer.close()
    keeping.cancel()


async def test_a_broken_pair_is_not_taken(
    door: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_certificate(tmp_path / "other", "other")
    shutil.copy(tmp_path / "other" / "cert.pem", tmp_path / "cert.pem")

    await door.certificate.look()

    assert await name_of(door) == "herd"
    shutil.copy(tmp_path / "other" / "key.pem", tmp_path / "key.pem")
    await door.certificate.look()
    assert await name_of(door) == "other"


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)

    for options in ({"tls_cert": cert}, {"tls_key": key}):
        with pytest.raises(Misconfigured, match="TLS needs both"):
            check_options(make_config(**options))
    check_options(make_config(tls_cert=cert, tls_key=key))


def test_a_pair_that_does_not_match_is_refused_in_words(tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path)
    _, key = make_certificate(tmp_path / "other")

    with pytest.raises(Misconfigured, match="cannot be used together: key values mismatch"):
        Certificate(cert, key)


def test_a_file_that_is_missing_or_no_certificate_is_named(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)

    with pytest.raises(Misconfigured, match=r"tls_key is .*nothing.pem, which is not a file"):
        Certificate(cert, str(tmp_path / "nothing.pem"))
    with pytest.raises(Misconfigured, match=r"tls_cert is .*key.pem, which holds no certificate in PEM"):
        Certificate(key, key)
    with pytest.raises(Misconfigured, match=r"tls_key is .*cert.pem, which holds no private key in PEM"):
        Certificate(cert, cert)


def test_a_key_with_a_pass_phrase_is_refused_in_words(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    locked = str(tmp_path / "locked.pem")
    lock = ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked]
    subprocess.run(lock, check=True, capture_output=True)

    with pytest.raises(Misconfigured, match=r"tls_key is .*locked.pem, which has a pass phrase"):
        Certificate(cert, locked)


async def test_a_certificate_that_clients_refuse_is_used_and_logged(
    door: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expire(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    await door.certificate.look()

    (warning,) = [each for each in caplog.records if "clients will refuse" in each.message]
    assert "certificate has expired" in vars(warning)["remuda_fields"]["reason"]
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        await door.connect(ssl.create_default_context(cafile=tmp_path / "cert.pem"))


async def test_an_expired_certificate_is_logged_at_the_start_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = make_certificate(tmp_path)
    expire(cert, key)

    keeping = asyncio.create_task(Certificate(cert, key).keep_fresh(0.01, warn_every=0.01))

    await eventually(lambda: caplog.text.count("clients will refuse the certificate") >= 2, DEADLINE)
    keeping.cancel()


@pytest.mark.parametrize("networks", ["10.0.0.0/8, all", "300.0.0.1", "10.0.0.0/33"])
def test_a_trusted_proxy_that_is_no_network_is_named(networks: str) -> None:
    with pytest.raises(Misconfigured, match=r"trusted_proxy has '(all|300.0.0.1|10.0.0.0/33)'"):
        check_options(make_config(trusted_proxy=networks))


def test_a_herd_with_a_certificate_speaks_https_from_its_first_line_on(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with new_herd("--slots", "1", environ={"REMUDA_TLS_CERT": cert, "REMUDA_TLS_KEY": key}) as herd:
        parts = urlsplit(herd.url)
        assert parts.scheme == "https"
        trusting = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=DEADLINE, context=trusting)
        connection.request("GET", "/json/version")
        told = json.loads(connection.getresponse().read())
        connection.close()

        assert told["webSocketDebuggerUrl"].startswith(f"wss://{parts.netloc}/cdp/")
        status, error = plainly(parts.netloc)
        assert status == 400
        assert "https://" in error["error"]["message"]


def plainly(netloc: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Status and JSON of the answer to a request without TLS."""
    connection = http.client.HTTPConnection(netloc, timeout=DEADLINE)
    connection.request("GET", "/")
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def test_a_herd_that_cannot_read_its_certificate_says_so_at_once(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    options = ["--port", "0", "--data", str(tmp_path / "data")]

    ended = subprocess.run(
        [*REMUDA, "up", *options],
        env={**os.environ, "REMUDA_TLS_CERT": missing, "REMUDA_TLS_KEY": missing},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert ended.returncode != 0
    assert f"tls_cert is {missing}" in ended.stderr + ended.stdout
