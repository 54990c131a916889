"""Certificates in files, which are read again when the files change: those that servers show, and those of
the authorities that clients trust."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from remuda.base import clock
from remuda.base.errors import Misconfigured
from remuda.base.log import get_logger

log = get_logger(__name__)

LOOK_EVERY = 1.0
WARN_EVERY = 3600.0
"""A certificate that was good when it was read may expire later."""


class TlsFiles:
    """Files with what TLS needs. Each connection gets the `context` that is the current one."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """Reads these, by the names of their options; Misconfigured says what is wrong with them."""
        self._files = {option: Path(file) for option, file in files.items()}
        self._stamps = self._read_stamps()
        self.context = self._load()

    def __str__(self) -> str:
        option, file = next(iter(self._files.items()))
        return f"{option} is {file}"

    async def keep_fresh(self, every: float = LOOK_EVERY, *, warn_every: float = WARN_EVERY) -> None:
        """Reads the files again whenever they change, for ever. What was read before is used while they are
        wrong."""
        while True:
            await asyncio.to_thread(self._warn)
            warned_at = clock.monotonic()
            while clock.monotonic() < warned_at + warn_every:
                await asyncio.sleep(every)
                await self.look()

    async def look(self) -> None:
        """Reads the files again if they have changed."""
        await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """The same, for processes without an event loop."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            # A new context, not the old one: half of a pair that does not match would stay in that.
            self.context = self._load()
        except Misconfigured as error:
            log.warning("certificate not replaced", reason=error.message)
        else:
            log.info("certificate replaced", file=str(next(iter(self._files.values()))))
            self._warn()

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files.values()]

    def _load(self) -> ssl.SSLContext:
        for option, path in self._files.items():
            if not os.access(path, os.R_OK) or not path.is_file():
                raise Misconfigured(f"{option} is {path}, which is not a file that can be read")
        return self._make_context(*self._files.values())

    def _make_context(self, *files: Path) -> ssl.SSLContext:
        raise NotImplementedError

    def _warn(self) -> None:
        """Logs why others will not accept what was read, if that can be known here."""


class Certificate(TlsFiles):
    """A server's certificate with its key."""

    def __init__(self, cert: str, key: str, *, options: str = "") -> None:
        super().__init__({f"{options}tls_cert": cert, f"{options}tls_key": key})

    @classmethod
    def of(cls, cert: str, key: str, *, options: str = "") -> "Certificate | None":
        """That of the options, whose names begin with `options`; None if there is none."""
        if bool(cert) != bool(key):
            given, missing = ("tls_cert", "tls_key") if cert else ("tls_key", "tls_cert")
            raise Misconfigured(f"{options}{given} is given, but {options}{missing} is not: TLS needs both")
        return cls(cert, key, options=options) if cert else None

    def follow(self) -> ssl.SSLContext:
        """A context for a server that keeps the one that it was started with: each connection gets the
        current one."""

        def use_current(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self.context

        # OpenSSL calls it for every client, also for those that name no server.
        context = self.context
        context.sni_callback = use_current
        return context

    def _make_context(self, *files: Path) -> ssl.SSLContext:
        cert, key = files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        harden(context)
        # A client could keep the processor busy with it; TLS 1.3 has none.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        is_locked = False

        def refuse() -> bytes:
            # Without this OpenSSL would ask for the pass phrase on the terminal.
            nonlocal is_locked
            is_locked = True
            return b""

        try:
            context.load_cert_chain(cert, key, password=refuse)
        except OSError as error:  # Also a file that has just been taken away.
            raise Misconfigured(self._explain(error, is_locked=is_locked)) from error
        return context

    def _explain(self, error: OSError, *, is_locked: bool) -> str:
        (cert_option, cert), (key_option, key) = self._files.items()
        if is_locked:
            return f"{key_option} is {key}, which has a pass phrase: remove it with `openssl pkey`"
        # OpenSSL says only "PEM lib", whichever file it means.
        if isinstance(error, ssl.SSLError) and error.reason is None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
            except OSError:
                return f"{cert_option} is {cert}, which holds no certificate in PEM"
            return f"{key_option} is {key}, which holds no private key in PEM"
        return f"The certificate {cert} and the key {key} cannot be used together: {why_tls_failed(error)}"

    def _warn(self) -> None:
        cert = next(iter(self._files.values()))
        # A client that trusts any signer and any name: what it still refuses, every client will.
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            client.load_verify_locations(cert)
            _shake_hands(self.context, client)
        except OSError as error:
            log.warning("clients will refuse the certificate", file=str(cert), reason=why_tls_failed(error))


class Authorities(TlsFiles):
    """The authorities whose certificates a client believes, and no others."""

    def __init__(self, ca: str, *, option: str) -> None:
        super().__init__({option: ca})

    def _make_context(self, *files: Path) -> ssl.SSLContext:
        (ca,) = files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        harden(context)
        try:
            context.load_verify_locations(ca)
        except OSError as error:
            raise Misconfigured(f"{ca} holds no certificate in PEM: {why_tls_failed(error)}") from error
        return context

    def check(self, certificate: Certificate, host: str) -> None:
        """Misconfigured if this certificate would not be believed under this name."""
        try:
            _shake_hands(certificate.context, self.context, host)
        except ssl.SSLError as error:
            raise Misconfigured(
                f"{certificate}, and other machines would not connect to {host}: {why_tls_failed(error)}"
            ) from error


def harden(context: ssl.SSLContext) -> None:
    """Has a context for the herd's own connections speak nothing older than TLS 1.2, and that only with keys
    which do not outlive the connection and with authenticated encryption, as TLS 1.3 always does."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None) -> None:
    """Plays both sides of a handshake; SSLError if one of them refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    for side in (asking, serving, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def why_tls_failed(error: OSError) -> str:
    """The reason in words, without the names of OpenSSL's own files and functions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (reason or "").replace("_", " ").lower() or str(error)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
