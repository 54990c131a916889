"""What a browser's processes can reach of the machine: tried out by programs in a browser's place."""

import ctypes
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from browser_directories import nest
from disks import disk, filled
from remuda.base.config import Config
from remuda.base.confinement import (
    OPENERS,
    Confinement,
    Protection,
    ProtectionConfig,
    browser_environ,
    protection_of,
    remove_directory,
    unconfined,
)
from remuda.base.directories import read_log
from remuda.base.errors import DriverUnavailable, Misconfigured
from remuda.base.reach import (
    hold_directory,
    is_open_to_all,
    make_reachable,
    use_open_temporary_directory,
)
from remuda.base.seccomp import can_filter_calls
from remuda.base.users import claim_user, read_uids, take_identity
from waiting import eventually

UIDS = range(57000, 57100)
"""Not those of a herd that other tests run at the same time."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_landlock = pytest.mark.skipif(
    protection_of(Config(ProtectionConfig(browser_uids=""))).landlock == 0, reason="no Landlock here"
)


needs_filter = pytest.mark.skipif(not can_filter_calls(), reason="no filters of system calls here")
LANDLOCK_WITH_SCOPES = 6


@pytest.fixture
def protection() -> Protection:
    uids = UIDS if os.geteuid() == 0 else range(0)
    return replace(protection_of(Config(ProtectionConfig(browser_uids=""))), uids=uids, has_namespaces=True)


@pytest.fixture
def confinement(protection: Protection) -> Iterator[Confinement]:
    claimed = Confinement.claim(protection)
    yield claimed
    claimed.release()


@pytest.fixture
def place(confinement: Confinement, tmp_path: Path) -> Path:
    """A browser's directory, in which a program may work though it cannot reach what lies above."""
    directory = tmp_path / "browser"
    directory.mkdir(mode=0o700)
    confinement.own(directory)
    return hold_directory(directory)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that every user of the machine can write to."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def run_inside(confinement: Confinement, place: Path, script: str) -> subprocess.CompletedProcess[str]:
    """What a shell says in a browser's place."""
    return subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        env=browser_environ(place, confinement.openers),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        preexec_fn=confinement.inside(place),
    )


def call_inside(confinement: Confinement, place: Path, call: Callable[[], object]) -> str:
    """What this call results in, in a browser's place: `done`, or the name of the error."""
    enter = confinement.inside(place)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter()
            call()
            os.write(writer, b"done")
        except OSError as error:
            os.write(writer, errno.errorcode[error.errno or 0].encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as result:
        return result.read()


# Files


@needs_landlock
def test_a_browser_writes_to_its_own_directory_and_nowhere_else(
    confinement: Confinement, place: Path, outside: Path
) -> None:
    run = run_inside(
        confinement,
        place,
        f"echo own > file; cat file; ln -s {outside} link; echo > link/marker; "
        f"echo > /tmp/marker-{os.getpid()}; echo > /var/tmp/marker-{os.getpid()}; "
        f"mv file /tmp/marker-{os.getpid()}",
    )

    assert run.stdout == "own\n"
    assert list(outside.iterdir()) == []
    assert not Path(f"/tmp/marker-{os.getpid()}").exists()
    assert not Path(f"/var/tmp/marker-{os.getpid()}").exists()


@needs_landlock
def test_a_browser_cannot_put_another_home_in_place_of_its_own(confinement: Confinement) -> None:
    # Where browsers have theirs: what lies above is open to all.
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    confinement.own(directory)
    confinement.make_home(directory)
    home = Path(browser_environ(directory)["HOME"])

    # A page can rename directories, too.
    steps = f"mv {home} {directory}/old; mkdir -p {home}/.pki; echo > {home}/Downloads/file"
    run_inside(confinement, directory, steps)

    assert sorted(path.name for path in home.iterdir()) == [".cache", ".config", ".mozilla", "Downloads"]
    assert (home / "Downloads" / "file").exists()
    remove_directory(directory, owners=confinement.protection.users)
    assert not home.exists()


@needs_landlock
def test_a_browser_does_not_wait_for_the_disk(confinement: Confinement, place: Path) -> None:
    # Nothing can be written to the disk from there: the kernel refuses whoever asks for it.
    script = "sync /dev/null && sync --data /dev/null && echo done"
    outside = subprocess.run(["sh", "-c", script], cwd=place, capture_output=True, text=True, timeout=30)

    run = run_inside(confinement, place, script)

    assert (outside.stdout, run.stdout, run.stderr) == ("", "done\n", "")


# Sockets


@needs_filter
@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_browser_connects_to_no_unix_socket(
    confinement: Confinement, place: Path, outside: Path, *, is_abstract: bool
) -> None:
    path = f"{outside}/socket"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(f"\0{path}" if is_abstract else path)
        listener.listen()
        if not is_abstract:
            Path(path).chmod(0o777)

        assert call_inside(confinement, place, partial(client.connect, listener.getsockname())) == "EACCES"


@needs_filter
@needs_landlock
@pytest.mark.parametrize("length", [13, 25])
def test_an_abstract_socket_is_closed_although_its_address_is_as_long_as_an_ip_address(
    confinement: Confinement, place: Path, length: int
) -> None:
    if confinement.protection.landlock < LANDLOCK_WITH_SCOPES:
        pytest.skip("Landlock has no scopes here")
    name = f"\0{os.getpid():0{length}}"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(name)
        listener.listen()

        assert call_inside(confinement, place, partial(client.connect, name)) == "EPERM"


@needs_filter
@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_a_browser_connects_to_ip_addresses(
    confinement: Confinement, place: Path, family: str, address: str
) -> None:
    with (
        socket.create_server((address, 0), family=getattr(socket, family)) as listener,
        socket.socket(listener.family) as client,
    ):
        assert call_inside(confinement, place, partial(client.connect, listener.getsockname())) == "done"


@needs_filter
@pytest.mark.parametrize(
    ("call", "result"),
    [
        # Chromium and Firefox do not start without these.
        (partial(socket.socket, socket.AF_UNIX), "done"),
        (partial(socket.socketpair, socket.AF_UNIX, socket.SOCK_SEQPACKET), "done"),
        # With these, what is behind a path gets messages without a connection.
        (partial(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM), "EACCES"),
        (partial(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM), "EACCES"),
        # Its addresses are as long as those of IPv4.
        (partial(socket.socket, getattr(socket, "AF_VSOCK", 40)), "EAFNOSUPPORT"),
        (lambda: make_io_uring(), "ENOSYS"),
    ],
    ids=["stream", "pair", "datagram", "pair of datagrams", "vsock", "io_uring"],
)
def test_a_browser_makes_only_sockets_that_reach_nothing_else(
    confinement: Confinement, place: Path, call: Callable[[], object], result: str
) -> None:
    assert call_inside(confinement, place, call) == result


def make_io_uring() -> None:
    """Fails with EFAULT for want of parameters, if the kernel looks at the call at all."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(425, 1, None)
    raise OSError(ctypes.get_errno(), "io_uring_setup")


def test_where_chromium_needs_a_set_user_id_program_operators_are_warned(protection: Protection) -> None:
    without = replace(protection, is_root=False, has_namespaces=False)

    assert without.warning == "browsers reach every Unix socket that their user may connect to"
    assert "not kept from Unix sockets" in str(without)
    assert replace(protection, has_seccomp=True).warning == ""


@pytest.mark.parametrize("opener", ["xdg-open", "xdg-email"])
def test_a_browser_opens_nothing_with_another_program(
    confinement: Confinement, place: Path, outside: Path, opener: str
) -> None:
    reachable = make_reachable(OPENERS, outside / "programs")

    # With a screen, the machine's own starts what it finds in these files.
    run = run_inside(
        replace(confinement, openers=reachable),
        place,
        f"""
        mkdir -p .config .local/share/applications
        printf '[Default Applications]\\nx-scheme-handler/mailto=evil.desktop' > .config/mimeapps.list
        printf '[Desktop Entry]\\nType=Application\\nName=evil\\nExec=/bin/echo started' \\
            > .local/share/applications/evil.desktop
        HOME=. DISPLAY=:0 {opener} mailto:a@example.com; echo $?
        """,
    )

    assert run.stdout == "3\n"


@needs_landlock
def test_a_browser_reads_no_private_files(confinement: Confinement, place: Path, outside: Path) -> None:
    (outside / "secret").write_text("secret")
    (outside / "secret").chmod(0o666)

    run = run_inside(
        confinement, place, f"cat {outside}/secret /etc/shadow /etc/sudoers; ls /home /root /var/log"
    )

    assert run.stdout == ""
    assert run.stderr.count("denied") >= 3


@needs_landlock
def test_a_browser_reads_what_the_config_names(confinement: Confinement, place: Path, outside: Path) -> None:
    (outside / "page.html").write_text("page")
    reads = protection_of(Config(ProtectionConfig(browser_reads=str(outside)))).reads
    protection = replace(confinement.protection, reads=reads)

    run = run_inside(replace(confinement, protection=protection), place, f"cat {outside}/page.html")

    assert run.stdout == "page"


def test_a_browser_runs_the_programs_of_the_system(confinement: Confinement, place: Path) -> None:
    run = run_inside(confinement, place, "ls /usr/bin > list && wc -l < list && cat /etc/hosts > /dev/null")

    assert run.stderr == ""
    assert int(run.stdout) > 10


@needs_landlock
@pytest.mark.parametrize("where", [".", "/dev/shm"])
def test_a_browser_cannot_run_what_it_has_written(confinement: Confinement, place: Path, where: str) -> None:
    program = f"{where}/program-{os.getpid()}"

    run = run_inside(confinement, place, f"cp /bin/echo {program}; {program} ran; rm {program}")

    assert "denied" in run.stderr
    assert "ran" not in run.stdout


@needs_landlock
def test_a_native_browser_runs_nothing_but_itself_and_its_helpers(
    confinement: Confinement, place: Path, outside: Path
) -> None:
    for name in ("browser", "helper"):
        shutil.copy("/bin/sh", outside / name)
    run = partial(subprocess.run, cwd=place, capture_output=True, text=True, timeout=30)
    script = f"{outside}/helper -c 'echo helped'; /bin/echo ran; ./browser; cat /usr/bin/env"

    alone = confinement.inside(place, [outside / "browser"], runs_alone=True)
    said = run([outside / "browser", "-c", script], preexec_fn=alone)

    assert said.stdout == "helped\n"


@needs_landlock
def test_a_browser_that_is_a_script_runs_the_programs_of_the_system(
    confinement: Confinement, place: Path, outside: Path
) -> None:
    script = outside / "browser"
    script.write_text("#!/bin/sh\n/bin/echo ran\n")
    script.chmod(0o755)

    alone = confinement.inside(place, [script], runs_alone=True)
    said = subprocess.run([script], cwd=place, capture_output=True, text=True, timeout=30, preexec_fn=alone)

    assert said.stdout == "ran\n"


# Rights


@needs_root
def test_a_browser_has_a_user_of_its_own_and_no_groups(confinement: Confinement, place: Path) -> None:
    assert confinement.user is not None

    run = run_inside(confinement, place, "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status")

    uid = str(confinement.user.uid)
    assert run.stdout.split() == [uid, uid, uid, "NoNewPrivs:", "1"]


@needs_root
def test_no_process_of_a_browsers_user_can_ever_gain_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the moment in which it becomes that user, and in which another of them could look at it.
    def check(*_uids: int) -> None:
        os._exit(0 if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text() else 1)

    monkeypatch.setattr(os, "setresuid", check)
    pid = os.fork()
    if pid == 0:
        try:
            take_identity(UIDS[1])
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@needs_root
def test_what_gives_up_root_cannot_be_spied_on_by_its_browser(protection: Protection, tmp_path: Path) -> None:
    script = """
import os, subprocess, sys, time
from functools import partial
from pathlib import Path
from remuda.base.confinement import Confinement, browser_environ, protection_of
from remuda.base.config import Config
from remuda.base.confinement import ProtectionConfig
from remuda.base.reach import hold_modules
from dataclasses import replace

protection = replace(protection_of(Config(ProtectionConfig(browser_uids=""))), uids=range(57000, 57100))
confinement = Confinement.claim(protection)
hold_modules()
confinement.become()
os.environ["SECRET"] = "s3cret"
assert os.getgroups() == [] and os.geteuid() == confinement.user.uid
assert os.getegid() == protection.group
import xml.dom.pulldom  # Not imported before, and perhaps in root's own home.
directory = Path(f"/tmp/confined-{os.getpid()}")
directory.mkdir()
pid = os.getpid()
print(subprocess.run(
    ["sh", "-c", f"id -G; cat /proc/{pid}/environ; ls /proc/{pid}/fd; kill -9 {pid}; echo done"],
    env=browser_environ(directory), capture_output=True, text=True,
    preexec_fn=confinement.inside(directory),
).stdout.split())
directory.rmdir()
print(confinement.user.uid)
"""

    run = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "SECRET": "s3cret"}, capture_output=True, text=True
    )

    said, uid = run.stdout.splitlines()
    assert said == str([uid, "done"]), run.stderr


def test_the_environment_of_a_browser_has_none_of_the_herds_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (
        "REMUDA_REDIS",
        "REMUDA_OTLP_HEADERS",
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
    ):
        monkeypatch.setenv(name, "secret")
    for name in ("LC_ALL", "https_proxy", "REMUDA_HERD", "REMUDA_HOLDER"):
        monkeypatch.setenv(name, "kept")

    environ = browser_environ(tmp_path)

    assert "secret" not in environ.values()
    assert sum(value == "kept" for value in environ.values()) == 4
    assert environ["TMPDIR"] == str(tmp_path)
    assert environ["DBUS_SESSION_BUS_ADDRESS"] == "disabled:"
    assert environ["PATH"] == f"{OPENERS}:{os.environ['PATH']}"


@needs_landlock
def test_a_browser_gets_the_display_of_the_herd_if_the_operator_says_so_and_there_is_one(
    monkeypatch: pytest.MonkeyPatch, place: Path, confinement: Confinement, outside: Path
) -> None:
    authority = outside / "authority"
    authority.write_text("cookie")
    given = {"DISPLAY": ":7", "XAUTHORITY": str(authority)}
    config = Config(ProtectionConfig(browser_uids="", share_display=True))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert not protection_of(config).shares_display
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert protection_of(config).shares_display

    shared = replace(confinement, protection=replace(confinement.protection, shares_display=True))
    said = [run_inside(each, place, f"cat {authority}").stdout for each in (confinement, shared)]

    assert said == ["", "cookie"]
    environ = browser_environ(place, shares_display=True)
    assert given.items() <= environ.items()


def test_the_home_of_a_browser_cannot_be_written_to_but_removed(tmp_path: Path) -> None:
    directory = tmp_path / "browser"
    directory.mkdir()

    unconfined().make_home(directory)

    home = Path(browser_environ(directory)["HOME"])
    assert (stat.S_IMODE(home.stat().st_mode), stat.S_IMODE((home / "Downloads").stat().st_mode)) == (
        0o500,
        0o700,
    )
    remove_directory(directory, owners=unconfined().protection.users)
    assert not directory.exists()


@needs_root
def test_what_a_link_leads_to_is_not_given_to_a_browser(confinement: Confinement, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o640)
    (tmp_path / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(OSError, match="symbolic link"):
        confinement.own(tmp_path / "link")

    found = (tmp_path / "secret").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o640)


def test_nothing_but_a_log_is_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log").write_text("x" * (2 << 20) + "the end")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")

    assert read_log(tmp_path / "log").endswith("xthe end")
    assert len(read_log(tmp_path / "log")) == 1 << 20
    assert [read_log(tmp_path / name) for name in ("link", "pipe", "missing")] == ["", "", ""]


# Users


@needs_root
def test_no_two_browsers_have_the_same_user() -> None:
    first = claim_user(UIDS[50:])
    second = claim_user(UIDS[50:])

    assert first.uid != second.uid

    first.release()
    third = claim_user(UIDS[50:])
    assert third.uid == first.uid
    second.release()
    third.release()


@needs_root
def test_a_user_is_free_when_its_last_holder_is_killed() -> None:
    user = claim_user(UIDS[60:61])
    holder = subprocess.Popen(["sleep", "60"], pass_fds=[user.lock])
    user.release()
    with pytest.raises(Misconfigured, match="in use"):
        claim_user(UIDS[60:61])

    holder.kill()
    holder.wait()

    claim_user(UIDS[60:61]).release()


@needs_root
async def test_nothing_of_a_user_is_left_for_the_next_who_has_it() -> None:
    uid = UIDS[70]
    shared = ("/dev/mqueue", "/dev/shm", "/run/lock", "/tmp", "/var/tmp")
    left = [Path(place, f"left-by-{uid}") for place in shared if Path(place).is_dir()]
    for path in left:
        path.touch()
    # Over DevTools, a client can have its browser save a file below a directory with any name.
    nested = Path(f"/dev/shm/nested-by-{uid}")
    nest(nested)
    left.append(nested)
    for path in left:
        os.chown(path, uid, uid)
    # As a browser may: in a session of its own, deaf to all signals that can be ignored.
    orphan = subprocess.Popen(
        ["sh", "-c", "trap '' TERM INT HUP; echo on; while :; do sleep 1; done"],
        user=uid,
        group=uid,
        extra_groups=[],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert orphan.stdout is not None
    orphan.stdout.readline()

    claim_user([uid]).release()

    await eventually(lambda: orphan.poll() is not None, 10)
    assert orphan.returncode == -signal.SIGKILL
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("text", ["0-10", "58000", "58999-58000", "a-b", "-5", "1-99999999999"])
def test_users_that_are_no_range_of_free_numbers_are_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="browser_uids"):
        read_uids(text)


def test_an_account_of_the_machine_is_no_browsers_user() -> None:
    with pytest.raises(Misconfigured, match="'daemon'"):
        read_uids("1-2")


# Programs in root's own home


def test_a_program_that_only_root_reaches_is_copied_to_where_all_do(tmp_path: Path) -> None:
    closed, opened = tmp_path / "closed", Path("/tmp") / f"opened-{os.getpid()}"
    (closed / "driver" / "lib").mkdir(parents=True)
    closed.chmod(0o700)
    for program in (closed / "driver" / "node", closed / "driver" / "lib" / "private"):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)

    copy = make_reachable(closed / "driver", opened)

    try:
        assert is_open_to_all(copy / "node")
        assert is_open_to_all(copy / "lib" / "private")
        assert (closed / "driver" / "node").stat().st_mode & 0o777 == 0o700
    finally:
        subprocess.run(["rm", "-r", opened], check=True)


@needs_root
def test_half_a_copy_on_a_full_disk_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "driver").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "driver" / "node").write_bytes(b"#" * 1_000_000)

    with disk() as place:
        with filled(place, free=500_000), pytest.raises(DriverUnavailable, match="No space left"):
            make_reachable(closed / "driver", place / "programs")

        copy = make_reachable(closed / "driver", place / "programs")

        assert (copy / "node").stat().st_size == 1_000_000


@pytest.mark.parametrize("place", ["link", pytest.param("directory", marks=needs_root)])
def test_no_program_is_copied_to_where_another_user_could_replace_it(outside: Path, place: str) -> None:
    program, planted = outside / "closed" / "driver", outside / "planted"
    program.parent.mkdir(mode=0o700)
    program.touch(mode=0o700)
    planted.mkdir(mode=0o700)
    (planted / "driver").touch()
    (outside / "link").symlink_to(planted)
    if place == "directory":
        os.chown(planted, UIDS[1], UIDS[1])

    with pytest.raises(DriverUnavailable, match="cannot be copied"):
        make_reachable(program, planted if place == "directory" else outside / place)

    assert stat.S_IMODE(planted.stat().st_mode) == 0o700


def test_a_program_that_all_reach_by_another_name_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    tmp_path.chmod(0o700)

    assert make_reachable(tmp_path / "sh", tmp_path / "staging") == Path("/bin/sh").resolve()
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize(
    ("mode", "is_used"), [(0o700, False), (0o755, False), (0o777, False), (0o1777, True)]
)
def test_temporary_files_are_where_every_user_may_make_some(
    monkeypatch: pytest.MonkeyPatch, mode: int, is_used: bool
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(mode)
        monkeypatch.setattr(tempfile, "tempdir", place)

        use_open_temporary_directory()

        assert tempfile.gettempdir() == (place if is_used else "/tmp")
