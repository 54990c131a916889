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
import signal
import socket
import sys
from pathlib import Path

import msgspec

from remuda.base.config import Config, load_config
from remuda.grid.browsers import Browser
from remuda.grid.node.main import run_node

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
    config = load_config()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap)
    # What is alive now stays: the collector need not touch it, so its pages stay shared.
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, LONGEST_MESSAGE, 1)
        if not message:
            return
        _bear(orders, config, msgspec.json.decode(message, type=Birth), descriptors[0])


def _bear(orders: socket.socket, config: Config, birth: Birth, control: int) -> None:
    # Until its pidfd is open the child must stay a zombie, should it die: its pid could be given away.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pid = os.fork()
    if pid == 0:
        orders.close()
        _become_node(config, birth, control)
    pidfd = os.pidfd_open(pid)
    socket.send_fds(orders, [str(pid).encode()], [pidfd])
    os.close(pidfd)
    os.close(control)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _become_node(config: Config, birth: Birth, control: int) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        status = run_node(
            config, birth.browser(), socket.socket(fileno=control), with_browser=birth.with_browser
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
