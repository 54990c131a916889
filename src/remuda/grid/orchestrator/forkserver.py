"""The fork server: a small process that has imported all a node needs and forks one whenever asked.

A fork takes a few milliseconds and shares its memory with the others; a fresh Python would take a quarter
of a second of CPU, just when browsers are starting. It must be a process of its own, without threads or
an event loop, because forking either is not safe.

Each request is one message with a JSON `ForkRequest` and the node's end of its control socket; the answer is
one message with the pid and a pidfd, by which the orchestrator learns of the node's death. Nodes outlive
the fork server: the orchestrator that started it may come back and find them.

Nodes that have given up root have their browsers' ports filtered here.
"""

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from remuda.accounts.room import AccountsConfig
from remuda.base.certificate import Certificate
from remuda.base.config import Config, HerdConfig, inherit_config
from remuda.base.confinement import OPENERS, Confinement, Protection, ProtectionConfig, protection_of
from remuda.base.interpreter import leave
from remuda.base.reach import (
    hold_directory,
    hold_modules,
    make_reachable,
    open_path,
    use_open_temporary_directory,
)
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.internal import InternalTls
from remuda.fleet.leftovers import holder_name
from remuda.fleet.tracing import TracingConfig
from remuda.grid.browsers import Browser
from remuda.grid.node.main import run_node
from remuda.grid.room import GridConfig
from remuda.storage.room import StorageConfig, storage_directory
from remuda.store.url import reach_by_group

SECTIONS = (
    HerdConfig,
    TracingConfig,
    ProtectionConfig,
    BrowserConfig,
    GridConfig,
    StorageConfig,
    AccountsConfig,
)
"""What nodes look at of the config."""
LONGEST_MESSAGE = 64 * 1024


class ForkRequest(msgspec.Struct):
    """What a node needs to know before it has a session."""

    browsers: list[Browser]
    """Those that its driver can start, first the one that it is made for."""
    with_browser: bool
    """Whether it is to start the browser, too, while it waits."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def decode(cls, message: bytes) -> "ForkRequest":
        return msgspec.json.decode(message, type=cls, dec_hook=lambda kind, value: kind(value))


def main() -> None:
    """Serves requests on the inherited socket until the orchestrator closes it."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    ground = _prepare(inherit_config(SECTIONS))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    # What is alive now stays: the collector need not touch it, so its pages stay shared.
    gc.collect()
    gc.freeze()
    # A killed orchestrator closes it in the middle of a fork. That node hears of it by its own socket.
    with suppress(ConnectionError):
        while True:
            message, descriptors, _, _ = socket.recv_fds(orders, LONGEST_MESSAGE, 1)
            if not message:
                break
            _fork_node(orders, ground, ForkRequest.decode(message), descriptors[0])
    if ground.protection.uids:
        shutil.rmtree(ground.staging, ignore_errors=True)


@dataclass(frozen=True)
class Ground:
    """What all nodes inherit."""

    config: Config
    protection: Protection
    staging: Path
    """Where drivers are copied to that browsers' users cannot reach."""
    gives_up_root: bool
    """Whether nodes become their browser's user. They do not where the herd's group cannot reach Redis: then
    only what they start does."""
    certificate: Certificate | None
    """What nodes show on their ports; the key may be readable by root only."""


def _prepare(config: Config) -> Ground:
    protection, certificate = protection_of(config), InternalTls.of(config).certificate
    if protection.group is None:
        return Ground(config, protection, Path(), False, certificate)
    use_open_temporary_directory()
    staging = Path(tempfile.gettempdir()) / holder_name()
    storage = storage_directory(config)
    storage.mkdir(parents=True, exist_ok=True)
    # Nodes make a directory for each session there; browsers, which are not in the group, see none of it.
    os.chown(storage, -1, protection.group)
    storage.chmod(0o2770)
    redis = reach_by_group(config[HerdConfig].redis, protection.group)
    if redis is None:
        return Ground(config, protection, staging, False, certificate)
    hold_modules()
    config = config.replace(redis=redis, storage=str(hold_directory(storage)))
    return Ground(config, protection, staging, True, certificate)


def _fork_node(orders: socket.socket, ground: Ground, request: ForkRequest, control: int) -> None:
    # Until its pidfd is open the child must stay a zombie, should it die: its pid could be given away.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    if ground.certificate is not None:
        ground.certificate.refresh()
    confinement = Confinement.claim(ground.protection)
    browsers = request.browsers
    if confinement.user is not None:
        confinement = replace(confinement, openers=make_reachable(OPENERS, ground.staging))
        driver = make_reachable(browsers[0].driver, ground.staging)
        browsers = [replace(each, driver=driver, binary=open_path(each.binary)) for each in browsers]
    pid = os.fork()
    if pid == 0:
        orders.close()
        _become_node(ground, browsers, control, confinement, with_browser=request.with_browser)
    pidfd = os.pidfd_open(pid)
    socket.send_fds(orders, [str(pid).encode()], [pidfd])
    os.close(pidfd)
    os.close(control)
    confinement.release()  # The node holds it now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _become_node(
    ground: Ground, browsers: list[Browser], control: int, confinement: Confinement, *, with_browser: bool
) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        if ground.gives_up_root:
            confinement.become()
        status = run_node(
            ground.config,
            browsers,
            socket.socket(fileno=control),
            confinement,
            certificate=ground.certificate,
            with_browser=with_browser,
        )
    finally:
        # Not sys.exit: the fork server's own frames must not run on in the child.
        os._exit(status)


def _reap(_signum: int, _frame: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
    leave()
