"""`remuda run`: one process with one or more roles in it."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import uvloop

from remuda.base.config import Config
from remuda.base.descriptors import raise_limit
from remuda.base.errors import Misconfigured
from remuda.base.log import configure_logs, get_logger
from remuda.fleet.lifeline import Lifeline
from remuda.fleet.role import DRAIN_TIMEOUT, Life, Role, install_signals
from remuda.fleet.tracing import exporting
from remuda.store import Store

log = get_logger(__name__)

LISTENER = "REMUDA_LISTENER"
"""Where a parent hands the gateway its listening socket, so that a restart refuses nobody."""


def _gateway(store: Store, config: Config) -> Role:
    from remuda.gateway.role import Gateway

    inherited = os.environ.get(LISTENER)
    return Gateway(store, config, socket.socket(fileno=int(inherited)) if inherited else None)


def _manager(store: Store, config: Config) -> Role:
    from remuda.fleet.permits import Allowance
    from remuda.grid.manager import Manager

    return Manager(
        store,
        body_bytes=config.body_megabytes * 1_000_000,
        waiting_bytes=config.waiting_megabytes * 1_000_000,
        allowed=Allowance.of(config.allow_browser_args),
    )


def _orchestrator(store: Store, config: Config) -> Role:
    from remuda.grid.orchestrator.local import LocalProvisioner
    from remuda.grid.orchestrator.role import Orchestrator, keep_id
    from remuda.grid.orchestrator.room import find_lack, places_of

    return Orchestrator(
        store,
        LocalProvisioner(config, redis_url=config.redis),
        orchestrator_id=keep_id(config.data / "orchestrator-id"),
        slots=config.slots or os.cpu_count() or 1,
        find_obstacle=partial(find_lack, places_of(config.data), megabytes=config.min_free_megabytes),
    )


def _api(store: Store, config: Config) -> Role:
    from remuda.ops.exporter import Exporter
    from remuda.ops.metrics_text import MEDIA_TYPE
    from remuda.web.api import Api
    from remuda.web.route import text_route

    exporter = Exporter(store, roles=ROLES)
    metrics = text_route("/metrics", "What Prometheus scrapes", MEDIA_TYPE, exporter.expose)
    return Api(store, extra=[metrics])


def _gc(store: Store, config: Config) -> Role:
    from remuda.fleet.leftovers import sweep_orphans
    from remuda.grid.sweeps import grid_sweeps
    from remuda.ops.gc import Gc
    from remuda.playwright.model import Limits
    from remuda.playwright.sweeps import playwright_sweeps

    sweeps = {
        **grid_sweeps(store, retention=config.session_retention),
        **playwright_sweeps(store, Limits.of(config)),
        "orphans": sweep_orphans,
    }
    return Gc(store, sweeps, interval=config.gc_interval)


def _storage(store: Store, config: Config) -> Role:
    from remuda.storage.model import Limits
    from remuda.storage.role import Storage

    limits = Limits(
        size=config.storage_megabytes * 1_000_000 or None, age=float(config.storage_retention) or None
    )
    return Storage(store, config.storage_directory, limits=limits)


def _worker(store: Store, config: Config) -> Role:
    from remuda.playwright.worker import Worker

    return Worker(store, config)


ROLES: Mapping[str, Callable[[Store, Config], Role]] = {
    "gateway": _gateway,
    "manager": _manager,
    "orchestrator": _orchestrator,
    "api": _api,
    "gc": _gc,
    "storage": _storage,
    "worker": _worker,
}


def run_roles(names: Sequence[str], config: Config) -> None:
    """Runs these roles until a signal, or the end of the herd that started this process."""
    for name in names:
        if name not in ROLES:
            raise Misconfigured(f"There is no role {name!r}; there are {', '.join(ROLES)}")
    if "worker" in names and len(names) > 1:
        raise Misconfigured("A worker needs a process of its own: its end takes all children along")
    if not config.redis:
        raise Misconfigured("A role needs to know its Redis: --redis URL or REMUDA_REDIS")
    configure_logs(level=config.log_level, form=config.log_format, role="+".join(names), pid=os.getpid())
    # A worker's clients are connected to its browser server, which raises its limit itself.
    if "worker" not in names:
        raise_limit()
    uvloop.run(_live(names, config))


async def _live(names: Sequence[str], config: Config) -> None:
    is_worker = "worker" in names
    # Around the roles: the spans of their last moments are exported too.
    async with exporting(config), Store(config.redis, prefix=config.prefix, name="+".join(names)) as store:
        roles = [ROLES[name](store, config) for name in names]
        life = Life(store, roles, drain_timeout=_drain_timeout(names, config))
        install_signals(life)
        lifeline = Lifeline.from_environ()
        if lifeline is not None:
            # A worker's clients come through the herd that is gone: waiting for them would be in vain.
            lifeline.watch(partial(_leave, store, life.ask_stop_at_once if is_worker else life.ask_stop))
        await life.run(lifeline)


def _leave(store: Store, ask_stop: Callable[[], None]) -> None:
    # The herd is gone, and with it the Redis that it may have brought.
    store.hasten()
    ask_stop()


def _drain_timeout(names: Sequence[str], config: Config) -> float:
    """How long these roles together may take to drain."""
    if "worker" in names:
        return float(config.playwright_drain)
    if list(names) == ["orchestrator"]:
        return float(config.orchestrator_drain)
    return DRAIN_TIMEOUT + (config.gateway_drain if "gateway" in names else 0)
