"""The processes that are measured side by side: nginx, our gateway, and the upstreams behind both."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

# Two sessions: the upstream of the first is HTTP, that of the second an echo of WebSocket bytes.
HTTP_SESSION = "11111111-1111-4111-8111-111111111111"
ECHO_SESSION = "22222222-2222-4222-8222-222222222222"
HTTP_PATH = f"/session/{HTTP_SESSION}/url"
ECHO_PATH = f"/session/{ECHO_SESSION}/se/bidi"
TOKEN = "rmd_" + "b" * 43
START_DEADLINE = 10.0

_NGINX = """
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  keepalive_requests 100000000;
  {http}
}}
"""
_UPSTREAM = """
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ default_type application/json; return 200 '{{"value":null}}'; }}
  }}
"""
_PROXY = """
  upstream pages {{ server 127.0.0.1:{pages}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} {tls} backlog=4096;
    {certificate}
    proxy_http_version 1.1;
    location / {{ proxy_pass http://pages; proxy_set_header Connection ""; }}
    location {echo_path} {{
      proxy_pass http://127.0.0.1:{echo};
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_read_timeout 600s;
    }}
  }}
"""


class Peer(NamedTuple):
    """A running server."""

    name: str
    port: int
    pid: int
    scheme: str = "http"
    token: str = ""


class Field(NamedTuple):
    """Everything one measurement needs."""

    direct: Peer
    echo: Peer
    nginx: Peer
    gateway: Peer


@contextmanager
def field() -> Iterator[Field]:
    """Start the upstreams and both gateways; stop them all at the end."""
    with ExitStack() as stack:
        direct = stack.enter_context(upstream())
        pages = direct.port
        echo = stack.enter_context(python("echo", free_port()))
        port = free_port()
        peer = stack.enter_context(nginx("nginx", port, proxy(port, pages, echo.port)))
        ours = stack.enter_context(python("gateway", free_port(), str(pages), str(echo.port)))
        yield Field(direct, echo, peer, ours)


def upstream() -> AbstractContextManager[Peer]:
    """An nginx that answers everything with the same small JSON."""
    port = free_port()
    return nginx("direct", port, _UPSTREAM.format(port=port))


def proxy(port: int, pages: int, echo: int, *, cert: str = "", key: str = "") -> str:
    """The config of an nginx that passes on what it gets, in TLS if it has a certificate."""
    # As the gateway: the default of older releases leaves out TLS 1.3, whose records cost more.
    protocols = "ssl_protocols TLSv1.2 TLSv1.3;"
    certificate = f"ssl_certificate {cert}; ssl_certificate_key {key}; {protocols}" if cert else ""
    tls = "ssl" if cert else ""
    return _PROXY.format(
        port=port, pages=pages, echo=echo, echo_path=ECHO_PATH, tls=tls, certificate=certificate
    )


def make_certificate(directory: Path) -> tuple[str, str]:
    """A certificate for this machine, with the kind of key that is usual now."""
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@contextmanager
def nginx(name: str, port: int, http: str) -> Iterator[Peer]:
    """One nginx with one worker; the worker is the peer's process."""
    # Debian keeps it in sbin, which is not on everybody's PATH.
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if binary is None:
        raise SystemExit("nginx is not installed: apt-get install nginx-light wrk")
    with TemporaryDirectory() as temp:
        Path(temp).chmod(0o755)
        config = Path(temp) / "nginx.conf"
        config.write_text(_NGINX.format(dir=temp, http=http))
        with running([binary, "-c", str(config), "-p", temp, "-e", f"{temp}/error.log"], port) as pid:
            (worker,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            yield Peer(name, port, int(worker))


@contextmanager
def python(name: str, port: int, *arguments: str) -> Iterator[Peer]:
    """One of `bench.servers` in a process of its own."""
    with running([sys.executable, "-m", "bench.servers", name, str(port), *arguments], port) as pid:
        yield Peer(name, port, pid)


@contextmanager
def running(command: list[str], port: int, environ: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run the command until the end of the block; yields its process id once the port answers."""
    process = subprocess.Popen(command, env={**os.environ, **(environ or {})})
    try:
        wait_for(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=START_DEADLINE)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once somebody listens on the port."""
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not start to listen on port {port}")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def cpu_seconds(peer: Peer) -> float:
    """The processor time that the peer has used, in user and kernel."""
    fields = Path(f"/proc/{peer.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(peer: Peer) -> int:
    """The peer's memory in bytes."""
    pages = int(Path(f"/proc/{peer.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
