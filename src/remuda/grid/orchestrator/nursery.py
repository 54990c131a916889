"""The nursery: a small process that has imported all a node needs and forks one whenever asked.

A fork takes a few milliseconds and shares its memory with the others; a fresh Python would take a quarter
of a second of CPU, just when browsers are starting. It must be a process of its own, without threads or
an event loop, because forking either is a gamble.

Each request is one message with a JSON `Birth` and the node's end of its control socket; the answer is
one message with the pid and a pidfd, by which the orchestrator learns of the node's death. Nodes outlive
the nursery: the orchestrator that started it may come back and find them.
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

from remuda.base.config import Config, load_config
from remuda.base.confinement import Confinement, Protection, protection_of
from remuda.base.reach import (
    hold_directory,
    hold_modules,
    make_reachable,
    open_path,
    use_open_temporary_directory,
)
from remuda.fleet.leftovers import holder_name
from remuda.grid.browsers import Browser
from remuda.grid.node.main import run_node
from remuda.store.url import reach_by_group

LONGEST_MESSAGE = 64 * 1024


class Birth(msgspec.Struct):
    """What a node needs to know before it has a session."""

    name: str
    version: str
    binary: str
    driver: str
    driver_version: str
    names: list[str]
    with_browser: bool
    """Whether it is to start the browser, too, while it waits."""

    @classmethod
    def of(cls, browser: Browser, *, with_browser: bool) -> "Birth":
        return cls(
            browser.name,
            browser.version,
            str(browser.binary),
            str(browser.driver),
            browser.driver_version,
            list(browser.names),
            with_browser,
        )

    def browser(self) -> Browser:
        return Browser(
            name=self.name,
            version=self.version,
            binary=Path(self.binary),
            driver=Path(self.driver),
            driver_version=self.driver_version,
            names=tuple(self.names),
        )


def main() -> None:
    """Serves births on the inherited socket until the orchestrator closes it."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    ground = _prepare(load_config())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    # What is alive now stays: the collector need not touch it, so its pages stay shared.
    gc.collect()
    gc.freeze()
    # A killed orchestrator closes it in the middle of a birth. That node hears of it by its own socket.
    with suppress(ConnectionError):
        while True:
            message, descriptors, _, _ = socket.recv_fds(orders, LONGEST_MESSAGE, 1)
            if not message:
                break
            _fork_node(orders, ground, msgspec.json.decode(message, type=Birth), descriptors[0])
    if ground.protection.uids:
        shutil.rmtree(ground.staging, ignore_errors=True)


@dataclass(frozen=True)
class Ground:
    """What all nodes are born with."""

    config: Config
    protection: Protection
    staging: Path
    """Where drivers are copied to that browsers' users cannot reach."""
    gives_up_root: bool
    """Whether nodes become their browser's user. They do not where the herd's group cannot reach Redis: then
    only what they start does."""


def _prepare(config: Config) -> Ground:
    protection = protection_of(config)
    if protection.group is None:
        return Ground(config, protection, Path(), gives_up_root=False)
    use_open_temporary_directory()
    staging = Path(tempfile.gettempdir()) / holder_name()
    storage = config.storage_directory
    storage.mkdir(parents=True, exist_ok=True)
    # Nodes make a directory for each session there; browsers, which are not in the group, see none of it.
    os.chown(storage, -1, protection.group)
    storage.chmod(0o2770)
    redis = reach_by_group(config.redis, protection.group)
    if redis is None:
        return Ground(config, protection, staging, gives_up_root=False)
    hold_modules()
    config = replace(config, redis=redis, storage=str(hold_directory(storage)))
    return Ground(config, protection, staging, gives_up_root=True)


def _fork_node(orders: socket.socket, ground: Ground, birth: Birth, control: int) -> None:
    # Until its pidfd is open the child must stay a zombie, should it die: its pid could be given away.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    confinement = Confinement.claim(ground.protection)
    browser = birth.browser()
    if confinement.user is not None:
        driver = make_reachable(browser.driver, ground.staging)
        browser = replace(browser, driver=driver, binary=open_path(browser.binary))
    pid = os.fork()
    if pid == 0:
        orders.close()
        _become_node(ground, browser, control, confinement, with_browser=birth.with_browser)
    pidfd = os.pidfd_open(pid)
    socket.send_fds(orders, [str(pid).encode()], [pidfd])
    os.close(pidfd)
    os.close(control)
    confinement.release()  # The node holds it now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _become_node(
    ground: Ground, browser: Browser, control: int, confinement: Confinement, *, with_browser: bool
) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        if ground.gives_up_root:
            confinement.become()
        status = run_node(
            ground.config, browser, socket.socket(fileno=control), confinement, with_browser=with_browser
        )
    finally:
        # Not sys.exit: the nursery's own frames must not run on in the child.
        os._exit(status)


def _reap(_signum: int, _frame: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
