"""`remuda run`: one process with one or more roles in it."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial

import uvloop

from remuda.accounts.room import refuse_shared_display
from remuda.base.config import Config, HerdConfig
from remuda.base.confinement import protection_of
from remuda.base.descriptors import raise_limit
from remuda.base.errors import Misconfigured, reason_of
from remuda.base.interpreter import without_collector
from remuda.base.log import configure_logs
from remuda.base.systemd import keep_watchdog, notify
from remuda.cli.rooms import ROOMS
from remuda.fleet.internal import InternalTls
from remuda.fleet.lifeline import Lifeline
from remuda.fleet.role import Life, install_signals
from remuda.fleet.room import RoleKind, Room, Surroundings, role_kinds
from remuda.fleet.tracing import TracingConfig, exporting
from remuda.store import Store
from remuda.store.strangers import check_strangers


def run_roles(names: Sequence[str], config: Config, *, rooms: Sequence[Room] = ROOMS) -> None:
    """Runs these roles until a signal, or the end of the herd that started this process."""
    known = role_kinds(rooms)
    if unknown := [name for name in names if name not in known]:
        raise Misconfigured(f"There is no role {unknown[0]!r}; the roles are {', '.join(known)}")
    kinds = [known[name] for name in names]
    for kind in kinds:
        if kind.needs_own_process and len(kinds) > 1:
            raise Misconfigured(f"A {kind.name} needs a process of its own")
    herd = config[HerdConfig]
    if not herd.redis:
        raise Misconfigured("`remuda run` needs the URL of a Redis: set --redis or REMUDA_REDIS")
    refuse_shared_display(config)
    configure_logs(level=herd.log_level, form=herd.log_format, role="+".join(names), pid=os.getpid())
    if any(kind.raises_limit for kind in kinds):
        raise_limit()
    uvloop.run(_live(kinds, config, rooms))


async def _live(kinds: Sequence[RoleKind], config: Config, rooms: Sequence[Room]) -> None:
    herd, title = config[HerdConfig], "+".join(kind.name for kind in kinds)
    # Around the roles: the spans of their last moments are exported too.
    async with exporting(config[TracingConfig]), Store(herd.redis, prefix=herd.prefix, name=title) as store:
        await store.check_rights()
        if any(kind.starts_browsers for kind in kinds) and not herd.insecure_redis:
            await check_strangers(store.url)
        tls = InternalTls.of(config)
        surroundings = Surroundings(store, config, rooms, tls)
        is_alone = len(kinds) == 1
        drains = [(is_alone and kind.drain_alone) or kind.drain for kind in kinds]
        drain = max(seconds(config) for seconds in drains)
        try:
            with without_collector():  # Each imports its room.
                roles = [kind.make(surroundings) for kind in kinds]
                for kind, role in zip(kinds, roles, strict=True):
                    role.warning = protection_of(config).warning if kind.starts_browsers else ""
        except OSError as error:  # Of the data directory, for instance.
            named = f"{error.filename}: " if error.filename else ""
            raise Misconfigured(f"{title} cannot start: {named}{reason_of(error)}") from error
        life = Life(store, roles, drain_timeout=drain)
        install_signals(life)
        life.on_ready = lambda: notify("READY=1")
        life.on_leaving = lambda: notify("STOPPING=1")
        lifeline = Lifeline.from_environ()
        if lifeline is not None:
            leave = life.ask_stop_at_once if all(kind.ends_with_herd for kind in kinds) else life.ask_stop
            lifeline.watch(partial(_leave, store, partial(leave, "its herd is gone")))
        watchdog = asyncio.create_task(keep_watchdog(), name="watchdog")
        certificates = asyncio.create_task(tls.keep_fresh(), name="keep certificates fresh")
        try:
            await life.run(lifeline)
        finally:
            watchdog.cancel()
            certificates.cancel()


def _leave(store: Store, ask_stop: Callable[[], None]) -> None:
    # The herd is gone, and with it the Redis that it may have brought.
    store.hasten()
    ask_stop()
