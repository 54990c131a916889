"""Several machines on one: network namespaces on a bridge, and a herd whose roles are spread over them.

Needs root. Everything is removed at the end, also what a run left that was killed.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hiredis
import psutil
import pytest

from certificates import CertificateAuthority
from herds import DEADLINE, REMUDA
from processes import find_processes
from remuda.base.config import env_name
from remuda.base.processes import die_with_parent
from servers import DEBIAN, binary_of

MARK = "LC_REMUDA_TEST_MACHINES"
WANTED = {"capabilities": {"alwaysMatch": {"browserName": "chrome-headless-shell"}}}
# RFC 2544: for tests of networks, routed nowhere.
_NETWORK = "198.18.{}.{}"
_OWN = 254


class Machine:
    """A network namespace with one address."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def command(self, *words: str) -> list[str]:
        """The command that runs these words there, as the same process."""
        return ["ip", "netns", "exec", self.name, *words]


class Network:
    """Machines that reach each other, and that this process reaches."""

    def __init__(self) -> None:
        self._bridge = f"rmd{os.getpid()}"
        taken = _ip("-br", "address")
        self._third = next(each for each in range(256) if _NETWORK.format(each, _OWN) not in taken)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{_NETWORK.format(self._third, _OWN)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        self._machines: list[Machine] = []

    def add(self) -> Machine:
        """One more machine."""
        number = len(self._machines) + 1
        machine = Machine(f"{self._bridge}-{number}", _NETWORK.format(self._third, number))
        self._machines.append(machine)
        _ip("netns", "add", machine.name)
        link = machine.name
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
        _ip("link", "set", link, "master", self._bridge, "up")
        for words in (
            ("address", "add", f"{machine.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", machine.name, *words)
        return machine

    @contextmanager
    def partition(self, machine: Machine) -> Iterator[None]:
        """The machine reaches no other, and none reaches it; no connection is closed by that."""
        _ip("link", "set", machine.name, "nomaster")
        try:
            yield
        finally:
            _ip("link", "set", machine.name, "master", self._bridge)

    def remove(self) -> None:
        _remove(self._bridge)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _remove(bridge: str) -> None:
    for line in _ip("netns", "list").splitlines():
        if line.split()[0].startswith(f"{bridge}-"):
            _ip("netns", "delete", line.split()[0])
    # A namespace keeps its end of a link for as long as a connection of it is being closed.
    for link in (*re.findall(rf"\b{bridge}-\d+\b", _ip("-br", "link")), bridge):
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)


def _remove_leftovers() -> None:
    names = set(re.findall(r"\brmd(\d+)\b", _ip("netns", "list") + _ip("-br", "link")))
    for pid in names:
        if not psutil.pid_exists(int(pid)):
            _remove(f"rmd{pid}")


@contextmanager
def network() -> Iterator[Network]:
    """An empty network; skips the test where it cannot be had."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    _remove_leftovers()
    try:
        found = Network()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    try:
        yield found
    finally:
        found.remove()


class Eavesdropper:
    """Hears all that goes over a machine's link, but for what is said to Redis."""

    _EVERYTHING = 0x0003
    _REDIS = range(6379, 6382)
    _SENTINEL = 26379

    def __init__(self, machine: Machine) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(self._EVERYTHING))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind((machine.name, 0))
        self._socket.settimeout(0.1)
        self.heard = bytearray()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                frame = self._socket.recv(1 << 17)
            except TimeoutError:
                continue
            if frame[12:14] == b"\x08\x00":  # IPv4: its header begins after 14 bytes and says its own length.
                ports = struct.unpack_from("!HH", frame, 14 + (frame[14] & 15) * 4)
                if not any(port in self._REDIS or port == self._SENTINEL for port in ports):
                    self.heard += frame

    def __enter__(self) -> "Eavesdropper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()


class Process:
    """A process on one of the machines."""

    def __init__(
        self, machine: Machine, words: list[str], log: Path, environ: Mapping[str, str], **options: Any
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                machine.command(*words),
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent(signal.SIGKILL),
                **options,
            )

    def wait_for(self, text: str, count: int = 1) -> None:
        """Waits until its log has this text so often."""
        deadline = time.monotonic() + DEADLINE
        while self.log.read_text().count(text) < count:
            assert self._popen.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def leave(self) -> int:
        """Has it leave as an operator would; its exit status."""
        self._popen.terminate()
        return self._popen.wait(DEADLINE)


class SpreadHerd:
    """Roles of one herd on several machines, with a Redis that Sentinel watches."""

    def __init__(self, directory: Path, front: Machine) -> None:
        self.directory = directory
        self.front = front
        self.mark = f"{os.getpid()}-{directory.name}"
        self._environs: dict[str, dict[str, str]] = {}
        self._count = 0
        self.redises = {port: self._start_redis(port, 6379) for port in (6379, 6380, 6381)}
        self._sentinel = self._start_sentinel()
        self.redis_url = f"redis+sentinel://:pw@{front.address}:26379/main?sentinel_password=pw"
        # What a listener that closes has not accepted yet goes to the one that takes over (Linux 5.14).
        subprocess.run(front.command("sysctl", "-qw", "net.ipv4.tcp_migrate_req=1"), check=False)

    def _place(self, name: str) -> Path:
        self._count += 1
        place = self.directory / f"{self._count}-{name}"
        place.mkdir()
        return place

    def _redis(self, name: str, *options: str) -> Process:
        place = self._place(name)
        binary = str(binary_of(DEBIAN))
        # Debian's program looks at its name to know what it is; `ip netns exec` passes none on.
        server = place / "redis-server"
        server.symlink_to(binary)
        words = [str(server), *options, "--dir", str(place), "--bind", self.front.address]
        return Process(self.front, words, place / "log", {MARK: self.mark})

    def _start_redis(self, port: int, master: int) -> Process:
        follow = ("--replicaof", self.front.address, str(master)) if port != master else ()
        # A master without a replica takes no write. With a second one, a new master has a replica at once.
        safe = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
        locked = ("--requirepass", "pw", "--masterauth", "pw")
        quick = ("--repl-diskless-sync-delay", "0", "--save", "", "--appendonly", "yes")
        redis = self._redis(f"redis-{port}", "--port", str(port), *follow, *safe, *locked, *quick)
        redis.wait_for("Ready to accept connections")
        return redis

    def revive_redis(self, port: int) -> None:
        """Starts a server again that was killed, as a replica."""
        self.redises[port] = self._start_redis(port, self.master_port())

    def _start_sentinel(self) -> Process:
        config = self.directory / "sentinel.conf"
        config.write_text(
            f"port 26379\nrequirepass pw\nsentinel monitor main {self.front.address} 6379 1\n"
            "sentinel auth-pass main pw\n"
            "sentinel down-after-milliseconds main 3000\nsentinel failover-timeout main 6000\n"
        )
        sentinel = self._redis("sentinel", str(config), "--sentinel")
        sentinel.wait_for("+monitor master main")
        return sentinel

    def encrypt(self, *machines: Machine) -> None:
        """Gives these machines certificates of one authority: what starts on them from now on uses TLS."""
        authority = CertificateAuthority(self.directory / "authority")
        for machine in machines:
            options = authority.issue(machine.address, name=machine.name)
            self._environs[machine.name] = {env_name(name): value for name, value in options.items()}

    def run(self, machine: Machine, *roles: str, args: tuple[str, ...] = (), **environ: str) -> Process:
        """Starts these roles in one process there, and waits until they serve."""
        place = self._place("-".join(roles))
        words = ["run", *roles, "--redis", self.redis_url, "--data", str(place / "data"), "-v", *args]
        own = self._environs.get(machine.name, {})
        given = {MARK: self.mark, "REMUDA_LOG_FORMAT": "json", **own, **environ}
        process = Process(machine, [*REMUDA, *words], place / "log", given)
        process.wait_for('"event": "started"', len(roles))
        return process

    def run_gateway(self) -> Process:
        """A gateway that shares its port with the one that it replaces, if any."""
        args = ("--host", "0.0.0.0", "--insecure")
        environ = {"REMUDA_SHARE_PORT": "true", "REMUDA_INTERNAL_TLS_OPTIONAL": "true"}
        return self.run(self.front, "gateway", args=args, **environ)

    def run_manager(self) -> Process:
        return self.run(self.front, "manager", "api", "gc")

    def ask_sentinel(self, *words: str) -> Any:
        """A Sentinel's answer."""
        # Not by redis-cli: tests ask again and again, and each would be a process.
        reader = hiredis.Reader(encoding="utf-8", replyError=AssertionError)
        with socket.create_connection((self.front.address, 26379), DEADLINE) as connection:
            connection.sendall(b"AUTH pw\r\n" + " ".join(("sentinel", *words, "\r\n")).encode())
            answers: list[Any] = []
            while len(answers) < 2:
                while (answer := reader.gets()) is False:
                    reader.feed(connection.recv(1 << 16))
                answers.append(answer)
        return answers[-1]

    def master_port(self) -> int:
        """The port of the Redis that Sentinel calls the master."""
        return int(self.ask_sentinel("get-master-addr-by-name", "main")[1])

    def has_replicas(self) -> bool:
        """Whether both other servers follow the master."""
        replicas = self.ask_sentinel("replicas", "main")
        status = [dict(zip(each[::2], each[1::2], strict=True))["master-link-status"] for each in replicas]
        return status == ["ok", "ok"]

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = DEADLINE) -> Any:
        """Status and JSON of the front door's answer, over a connection of its own."""
        connection = http.client.HTTPConnection(self.front.address, 4444, timeout=timeout)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def create(self, *, timeout: float = DEADLINE) -> str:
        """A new session; AssertionError says why there is none."""
        status, answer = self.request("POST", "/session", WANTED, timeout=timeout)
        assert status == 200, answer
        return str(answer["value"]["sessionId"])

    def ride(self) -> None:
        """A session from its creation to its end, with a command between; each must succeed."""
        session = self.create()
        status, answer = self.request("GET", f"/session/{session}/url")
        assert status == 200, answer
        status, answer = self.request("DELETE", f"/session/{session}")
        assert status == 200, answer

    def logs(self) -> str:
        """What all of its processes have complained of, for a test that fails."""
        return "\n".join(f"--- {each}\n{each.read_text()[-4000:]}" for each in self.directory.glob("*/log"))

    def end(self) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            found = find_processes(MARK, self.mark)
            for process in found:
                try:
                    process.send_signal(signum)
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(found, timeout=5)
        # These write their titles over their environment.
        for server in (self._sentinel, *self.redises.values()):
            server.kill()


class Riders:
    """Clients that create, use and end sessions without a pause, and note what fails."""

    def __init__(self, herd: SpreadHerd, count: int) -> None:
        self._herd = herd
        self.failures: list[str] = []
        self.done = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ride, daemon=True) for _ in range(count)]

    def _ride(self) -> None:
        while not self._stop.is_set():
            try:
                self._herd.ride()
                self.done += 1
            except (AssertionError, OSError, http.client.HTTPException) as error:
                self.failures.append(f"{time.strftime('%X')} {error!r}")
                time.sleep(0.2)

    def __enter__(self) -> "Riders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE)

    def wait_for(self, more: int) -> float:
        """Waits until so many more rides were good; the seconds that took."""
        began, wanted = time.monotonic(), self.done + more
        while self.done < wanted:
            assert time.monotonic() < began + DEADLINE, (self.failures, self._herd.logs())
            time.sleep(0.02)
        return time.monotonic() - began


@contextmanager
def spread_herd(directory: Path) -> Iterator[tuple[SpreadHerd, Network, Machine]]:
    """Redis, gateway, manager and api on one machine, and another one for the browsers."""
    with ExitStack() as stack:
        machines = stack.enter_context(network())
        front, back = machines.add(), machines.add()
        herd = SpreadHerd(directory, front)
        stack.callback(herd.end)
        yield herd, machines, back
