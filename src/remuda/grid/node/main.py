"""A node's process: warm up, wait for a session, hold it, leave."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress

import uvloop

from remuda.accounts.room import AccountsConfig
from remuda.base.certificate import Certificate
from remuda.base.config import Config, HerdConfig
from remuda.base.confinement import Confinement
from remuda.base.errors import RemudaError
from remuda.base.ids import NodeId
from remuda.base.log import configure_logs, get_logger
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.internal import InternalTls, internal_hosts_of
from remuda.fleet.leftovers import holder_name
from remuda.fleet.lifeline import Lifeline
from remuda.fleet.permits import Allowance
from remuda.fleet.tracing import TracingConfig, exporting
from remuda.grid.browsers import Browser
from remuda.grid.node.assignment import LONGEST, Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.grid.node.payload import herd_args
from remuda.grid.node.recording.policy import Recording
from remuda.grid.room import GridConfig
from remuda.store import Store

log = get_logger(__name__)


# What a node says to its orchestrator: that it waits for a session, and that its session has a browser.
WARM = b"w"
OPEN = b"o"
SESSION_IS_SENT = 2.0
"""A node that is forked for a session is sent it right away."""


def run_node(
    config: Config,
    browsers: Sequence[Browser],
    control: socket.socket,
    confinement: Confinement,
    *,
    certificate: Certificate | None,
    with_browser: bool,
) -> int:
    """The whole life of a node that gets its session over a socket; its exit status."""
    herd = config[HerdConfig]
    configure_logs(level=herd.log_level, form=herd.log_format, role="node", pid=os.getpid())
    try:
        uvloop.run(
            _live(config, browsers, control, confinement, certificate=certificate, with_browser=with_browser)
        )
    except RemudaError as error:
        log.error("node failed", reason=error.message)
        return 1
    except Exception:
        # The process ends without a word otherwise: it has none of the interpreter's own end.
        log.exception("node broke")
        return 1
    return 0


async def _live(
    config: Config,
    browsers: Sequence[Browser],
    control: socket.socket,
    confinement: Confinement,
    *,
    certificate: Certificate | None,
    with_browser: bool,
) -> None:
    name = NodeId(holder_name())
    browser, *kin = browsers
    args = herd_args(config, browser, has_sandbox=confinement.protection.has_sandbox)
    control.setblocking(False)
    herd, browsing = config[HerdConfig], config[BrowserConfig]
    async with exporting(config[TracingConfig]), Store(herd.redis, prefix=herd.prefix, name=name) as store:
        node = Node(
            store,
            name,
            browser,
            kin=kin,
            confinement=confinement,
            recording=Recording.of(config),
            args=args,
            headless=browsing.headless,
            hang=config[GridConfig].browser_hang,
            hosts=internal_hosts_of(config, store, InternalTls(certificate)),
            ticket_lifetime=config[AccountsConfig].ticket_lifetime,
            allowed=Allowance.of(browsing.allow_browser_args),
        )
        leave = asyncio.Event()
        _heed_signals(node, leave, store)
        node.warm_up(
            with_browser=with_browser,
            on_warm=lambda: _say(control, WARM),
            on_open=lambda: _say(control, OPEN),
        )
        assignment = None
        try:
            assignment = await _await_session(control, leave, node)
        finally:
            if assignment is None:
                await node.discard()
        if assignment is not None:
            await node.hold(assignment)


def _say(control: socket.socket, what: bytes) -> None:
    # The orchestrator may be gone; the session stays.
    with suppress(OSError):
        control.send(what)


def _heed_signals(node: Node, leave: asyncio.Event, store: Store) -> None:
    def ask_to_leave() -> None:
        leave.set()
        node.end(Ending("TERM", "Its node was told to shut down"))

    def follow_the_herd() -> None:
        store.hasten()  # Its Redis is gone, too, if it was the herd's own.
        ask_to_leave()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, ask_to_leave)
    if (lifeline := Lifeline.from_environ()) is not None:
        lifeline.watch(follow_the_herd)


async def _await_session(control: socket.socket, leave: asyncio.Event, node: Node) -> Assignment | None:
    """The session that the orchestrator sends; None when it or the driver goes away, or the node shall,
    before that: a session that comes too late gets another node. Raises what kept the driver from
    starting."""
    message = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(control, LONGEST))
    leaving = [asyncio.ensure_future(leave.wait()), asyncio.ensure_future(_cooled(node))]
    try:
        done, _ = await asyncio.wait([message, *leaving], return_when=asyncio.FIRST_COMPLETED)
        told = message.result() if message in done else b""
        if not told:
            for waiter in done:
                waiter.result()
        elif node.has_cooled:
            session = Assignment.decode(told).session
            log.warning("session declined", session=session, reason="the driver has just ended")
            told = b""
    finally:
        for waiter in (message, *leaving):
            waiter.cancel()
    return Assignment.decode(told) if told else None


async def _cooled(node: Node) -> None:
    try:
        await node.cooled()
    except RemudaError:
        # A session that the node was forked for comes any moment, and has to be told.
        await asyncio.sleep(SESSION_IS_SENT)
        raise
