"""WebDriver BiDi without HTTP: a WebSocket at `/session`, over which the client asks for its session.

Until there is one (W3C WebDriver BiDi 5, "BiDi-only sessions"), the gateway has to read what the client says:
`session.status`, then `session.new`. That is done here, behind a port of this process that the relay forwards
to. The session comes from a manager like any other, and ends with its WebSocket. From then on the driver is
spoken to, but for `session.end`: drivers end no session by it that was asked for over HTTP, as theirs was.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from remuda.accounts.model import EVERYTHING
from remuda.base.errors import (
    InvalidArgument,
    RemudaError,
    SessionNotCreated,
    UpstreamLost,
    UpstreamUnavailable,
    UpstreamUntrusted,
)
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.http_client import accept_key, ask, dial_websocket
from remuda.fleet.internal import NO_TLS, InternalTls
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Forward, Request
from remuda.fleet.relay.bodies import Bodies
from remuda.fleet.relay.head import END, MAX_HEAD, read_head
from remuda.fleet.secret import HerdSecret
from remuda.gateway.directory import SessionDirectory
from remuda.gateway.faces import MANAGER_LOST
from remuda.gateway.frames import (
    GOING_AWAY,
    NORMAL,
    NOT_TEXT,
    POLICY,
    TRY_LATER,
    BadFrame,
    Opcode,
    close_frame,
    pass_payload,
    read_frame_head,
    read_message,
    server_frame,
    unmask,
)
from remuda.grid.wire import read_json

log = get_logger(__name__)

# From one message to the next, before there is a session.
MESSAGE_TIMEOUT = 60.0
# Capabilities may carry a browser profile.
MAX_MESSAGE = 16 << 20
# Of all clients that have no session yet, together.
MESSAGES_ROOM = 128 << 20
# Only messages up to this are looked at for session.end.
SHORT = 1024
HEAD_TIMEOUT = 30.0
# A manager answers by itself when its time-outs are up; this is for one that hangs.
CREATE_TIMEOUT = 24 * 3600.0
HANDSHAKE_TIMEOUT = 15.0
DELETE_TIMEOUT = 60.0
# For the case that the WebSocket to the browser is never opened.
IDLE_TIMEOUT = 30

# The modules of W3C WebDriver BiDi and of the specifications that extend it.
_MODULES = frozenset(
    (
        *("bluetooth", "browser", "browsingContext", "emulation", "input", "log", "network", "permissions"),
        *("script", "session", "speculation", "storage", "userAgentClientHints", "webExtension"),
    )
)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Event], Coroutine[Any, Any, None]]


class Failure(Exception):
    """An error that a command is answered with, in the words of W3C WebDriver."""

    def __init__(self, error: str, message: str, command: int | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.command = command
        """The command's id, if it can be told of what is otherwise no command."""


class _Connection(asyncio.StreamReaderProtocol):
    """A client's connection, which says when the client has left, also while nothing is read."""

    def __init__(self, serve: Serve) -> None:
        self._left = asyncio.Event()
        reader = asyncio.StreamReader(limit=MAX_HEAD)
        super().__init__(reader, lambda reader, writer: serve(reader, writer, self._left))

    def eof_received(self) -> bool | None:
        self._left.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left.set()
        super().connection_lost(exc)


class Bidi:
    """Serves `/session` for WebSockets, from `start` to `stop`."""

    def __init__(self, directory: SessionDirectory, secret: HerdSecret, tls: InternalTls = NO_TLS) -> None:
        self._directory = directory
        self._tls = tls
        self._secret = secret
        self._server: asyncio.Server | None = None
        self.address = Address("127.0.0.1", 0)
        """Where the conversations are; known once it has started."""
        self._talks: set[asyncio.Task[None]] = set()
        self.bodies = Bodies(MESSAGES_ROOM)

    async def start(self) -> None:
        """Opens the port that conversations are forwarded to."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._serve), self.address.host, 0)
        self.address = Address(self.address.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Ends every conversation, and with it its session."""
        if self._server is not None:
            self._server.close()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def route(self, _request: Request, origin: Origin) -> Forward:
        """The way to the conversation."""
        return Forward(self.address, "/session", origin.headers(), credential=self._secret.line)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: asyncio.Event
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            await self._greet(reader, writer, left)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # However the client went, it is gone.
        except RemudaError as error:
            log.debug("conversation refused", reason=error.message)
        finally:
            self._talks.discard(task)
            writer.close()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: asyncio.Event
    ) -> None:
        async with asyncio.timeout(HEAD_TIMEOUT):
            head = read_head(await reader.readuntil(END))
        if not self._secret.admits(head.fields.credential) or not head.is_upgrade:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        accept = accept_key(head.fields.find(b"sec-websocket-key") or b"")
        # No extension: what passes later is not looked at, so both sides must mean the same by a frame.
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
        )
        origin = Origin.read(head.fields.get, address="")
        headers = {**dict(origin.headers()), "User-Agent": head.fields.get("user-agent") or ""}
        talk = _Talk(self, reader, writer, left, headers, account=origin.shares_as)
        try:
            await talk.run()
        except BadFrame as error:
            writer.write(close_frame(error.code, error.message))
        except TimeoutError:
            writer.write(close_frame(POLICY, f"No session.new came within {MESSAGE_TIMEOUT:g} s."))
        except asyncio.CancelledError:
            writer.write(close_frame(GOING_AWAY))
            raise
        finally:
            talk.give_room_back()

    # What a conversation needs of the herd

    async def create(self, capabilities: Any, headers: dict[str, str]) -> dict[str, Any]:
        """A new session as its client sees it; Failure if there is none."""
        found = self._directory.find_manager()
        manager = found if isinstance(found, Address) else await found
        try:
            status, body = await ask(
                manager,
                "POST",
                "/session",
                msgspec.json.encode({"capabilities": capabilities}),
                credential=self._secret.line,
                headers=headers,
                timeout=CREATE_TIMEOUT,
                tls=self._tls.context_for(manager),
            )
        except UpstreamUntrusted:
            raise
        except UpstreamUnavailable as error:
            self._directory.forget(manager, may_run=isinstance(error, UpstreamLost))
            log.warning("session not created", reason=error.message)
            raise SessionNotCreated(MANAGER_LOST) from error
        try:
            value = msgspec.json.decode(body, type=dict[str, dict[str, Any]])["value"]
            if status != 200:
                raise Failure(value["error"], value["message"])
        except (msgspec.DecodeError, KeyError) as error:
            raise UpstreamUnavailable("The manager's answer is not valid.") from error
        return value

    async def dial(self, session: SessionId) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The session's own WebSocket, open."""
        node = self._directory.find_node(session, EVERYTHING)
        address = node if isinstance(node, Address) else await node
        return await dial_websocket(
            address,
            f"/session/{session}",
            credential=self._secret.line,
            timeout=HANDSHAKE_TIMEOUT,
            tls=self._tls.context_for(address),
        )

    async def delete(self, session: SessionId) -> None:
        """Ends a session."""
        with suppress(RemudaError):
            node = self._directory.find_node(session, EVERYTHING)
            address = node if isinstance(node, Address) else await node
            path = f"/session/{session}"
            try:
                await ask(
                    address,
                    "DELETE",
                    path,
                    credential=self._secret.line,
                    timeout=DELETE_TIMEOUT,
                    tls=self._tls.context_for(address),
                )
            except UpstreamUnavailable as error:
                await self._directory.end_session(session, error.message)


class _Talk:
    """One client's conversation, up to its end."""

    def __init__(
        self,
        bidi: Bidi,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: asyncio.Event,
        headers: dict[str, str],
        *,
        account: str,
    ) -> None:
        self._bidi = bidi
        self._reader = reader
        self._writer = writer
        self._left = left
        self._headers = headers
        # Held for each frame to the client: what is said here must not stand in the middle of another.
        self._speaking = asyncio.Lock()
        self._is_ending = False
        # Taken for its message, and the account that it counts for.
        self._room = 0
        self._account = account

    async def _take_room(self, size: int) -> None:
        bodies = self._bidi.bodies
        if not bodies.take(size, account=self._account, own=self._room):
            if self._room:
                # To wait with half a message could keep others waiting that have the other half of theirs.
                raise BadFrame(TRY_LATER, "Other messages take all memory for them.")
            await bodies.wait(size, account=self._account)
        self._room += size

    def give_room_back(self) -> None:
        """The message is no longer needed."""
        room, self._room = self._room, 0
        self._bidi.bodies.give_back(room, account=self._account)

    async def run(self) -> None:
        """Answers the client until it has a session, then lets the two talk."""
        while True:
            self.give_room_back()
            async with asyncio.timeout(MESSAGE_TIMEOUT) as patience:
                opcode, payload = await read_message(
                    self._reader,
                    max_size=MAX_MESSAGE,
                    take_room=self._take_room,
                    on_ping=partial(self._pong, patience),
                )
            if opcode is Opcode.CLOSE:
                self._writer.write(server_frame(Opcode.CLOSE, payload[:2] or NORMAL.to_bytes(2, "big")))
                return
            if opcode is Opcode.BINARY:
                raise BadFrame(NOT_TEXT, "WebDriver BiDi uses text messages.")
            if await self._answer(payload):
                return

    async def _pong(self, patience: asyncio.Timeout, payload: bytes) -> None:
        self._writer.write(server_frame(Opcode.PONG, payload))
        await self._writer.drain()
        # With half a message it could keep its room for ever.
        if not self._room:
            patience.reschedule(asyncio.get_running_loop().time() + MESSAGE_TIMEOUT)

    async def _answer(self, text: bytes) -> bool:
        """Answers one command; whether that was the last that is read here."""
        command: Any = None
        try:
            command, method, params = _read_command(text)
            if method == "session.new":
                return await self._new_session(command, params)
            self._succeed(command, _say_without_session(method))
        except Failure as failure:
            self._fail(failure.command if command is None else command, failure.error, failure.message)
        except BadFrame:
            raise
        except RemudaError as error:
            self._fail(command, "session not created", error.message)
        await self._writer.drain()
        return False

    async def _new_session(self, command: int, params: dict[str, Any]) -> bool:
        creating = asyncio.create_task(self._open(params), name="create a BiDi session")
        leaving = asyncio.create_task(self._left.wait(), name="watch a BiDi client")
        try:
            # A manager whose caller leaves creates no session.
            await asyncio.wait([creating, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not creating.done():
                return True
            value, reader, writer = creating.result()
        finally:
            leaving.cancel()
            creating.cancel()
            await asyncio.wait([creating])
        self.give_room_back()
        try:
            self._succeed(command, value)
            await self._pass_on(SessionId(value["sessionId"]), reader, writer)
        finally:
            writer.close()
        return True

    async def _pass_on(
        self, session: SessionId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Passes frames on in both directions until one side ends, or the client ends its session."""
        ways = [
            asyncio.create_task(self._pass_commands(session, writer), name="pass BiDi commands"),
            asyncio.create_task(self._pass_answers(reader), name="pass BiDi answers"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if self._is_ending:
                # The browser hangs up when its session ends; session.end is answered all the same.
                await asyncio.wait(ways[:1])
        finally:
            for way in ways:
                way.cancel()
            for outcome in await asyncio.gather(*ways, return_exceptions=True):
                if isinstance(outcome, BadFrame):
                    raise outcome

    async def _pass_commands(self, session: SessionId, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await read_frame_head(self._reader, is_masked=True)
            if head.opcode is not Opcode.TEXT or not head.is_last or head.length > SHORT:
                await pass_payload(head, self._reader, writer)
                continue
            payload = await self._reader.readexactly(head.length)
            command = _ending(unmask(payload, head.mask))
            if command is None:
                writer.write(head.raw + payload)
                await writer.drain()
                continue
            self._is_ending = True
            async with self._speaking:
                await self._bidi.delete(session)
                self._succeed(command, {})
                self._writer.write(close_frame(NORMAL))
            return

    async def _pass_answers(self, reader: asyncio.StreamReader) -> None:
        while True:
            head = await read_frame_head(reader, is_masked=False)
            async with self._speaking:
                await pass_payload(head, reader, self._writer)

    async def _open(
        self, params: dict[str, Any]
    ) -> tuple[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter]:
        value = await self._bidi.create(_with_websocket(params.get("capabilities")), self._headers)
        session = SessionId(value["sessionId"])
        try:
            return value, *await self._bidi.dial(session)
        except BaseException:
            await asyncio.shield(self._bidi.delete(session))
            raise

    def _succeed(self, command: int, result: Any) -> None:
        self._say({"type": "success", "id": command, "result": result})

    def _fail(self, command: Any, error: str, message: str) -> None:
        self._say({"type": "error", "id": command, "error": error, "message": message})

    def _say(self, answer: dict[str, Any]) -> None:
        self._writer.write(server_frame(Opcode.TEXT, msgspec.json.encode(answer)))


def _read_command(text: bytes) -> tuple[int, str, dict[str, Any]]:
    """Id, method and parameters of a command (W3C WebDriver BiDi 6.3); Failure when it is none."""
    try:
        command = read_json(text, "The message")
    except InvalidArgument as error:
        raise Failure("invalid argument", error.message) from error
    number = command.get("id") if isinstance(command, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 53:
        number = None
    match command:
        case {"method": str() as method, "params": dict() as params} if number is not None:
            return number, method, params
    # Clients wait for an answer with the id of their command.
    raise Failure("invalid argument", "A command needs an 'id', a 'method' and an object 'params'.", number)


def _ending(text: bytes) -> int | None:
    """The id of a command that ends the session; None for any other."""
    if b"session.end" not in text:
        return None
    try:
        number, method, _ = _read_command(text)
    except Failure:
        return None
    return number if method == "session.end" else None


def _say_without_session(method: str) -> dict[str, Any]:
    """The result of a command that needs no session; Failure for all others."""
    if method == "session.status":
        return {"ready": True, "message": "session.new creates a session."}
    if method.partition(".")[0] in _MODULES:
        raise Failure("invalid session id", f"{method} needs a session: send session.new first.")
    raise Failure("unknown command", f"There is no command {method[:100]!r}.")


def _with_websocket(capabilities: Any) -> Any:
    """The client's wishes, and that the session has BiDi and ends with its WebSocket."""
    if not isinstance(capabilities, dict):
        return capabilities  # The manager says what is wrong with it.
    always, first = capabilities.get("alwaysMatch", {}), capabilities.get("firstMatch", [{}])
    if not isinstance(always, dict) or not isinstance(first, list):
        return capabilities
    theirs = always.get("remuda:options", {})
    if not isinstance(theirs, dict):
        return capabilities
    ours = {
        "webSocketUrl": True,
        "remuda:options": {"idleTimeout": IDLE_TIMEOUT, **theirs, "endsWithWebSocket": True},
    }
    return {
        "alwaysMatch": _in_old_words(always) | ours,
        "firstMatch": [
            {name: value for name, value in _in_old_words(each).items() if name not in ours}
            if isinstance(each, dict)
            else each
            for each in first
        ],
    }


def _in_old_words(capabilities: dict[str, Any]) -> dict[str, Any]:
    """The same as drivers are asked over HTTP, of which some know only one behaviour for all prompts."""
    match capabilities:
        case {"unhandledPromptBehavior": {"default": str() as behavior, **others}} if not others:
            return {**capabilities, "unhandledPromptBehavior": behavior}
    return capabilities
