"""What keeps a browser from the rest of its machine: a user of its own, a fence around its files, and an
environment without secrets.

A browser is hostile ground: its client may be anybody, and so may the pages that it shows. What a client may
tell it is listed elsewhere. Here it loses what would be worth stealing:

- Started by root, each browser has a user of its own (`users.py`), with a directory that no other can read.
- Where the kernel has Landlock, for root and others alike, its processes can read only the system's files and
  their own, write only their own, and signal only each other (`landlock.py`).
- They connect to no Unix socket, such as Redis' (`seccomp.py`).
- They can never gain rights by a set-user-id program.
- Their HOME cannot be written to. Libraries of the system look there for others to load: NSS, Vulkan and GTK,
  for instance. Over DevTools a client can save files wherever the browser can write.
- Their environment has none of the herd's options, and they find no program that opens URLs and files with
  others: Chromium calls it for any `mailto:` link, and a client's downloads can tell it what to start.

Linux only; elsewhere browsers run as whoever started the herd.
"""

import ctypes
import os
import signal
import stat
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from remuda.base.config import Config, option
from remuda.base.directories import entered, open_plain, remove_tree
from remuda.base.landlock import Fence, forbid_new_privileges, landlock_version
from remuda.base.processes import die_with_parent
from remuda.base.programs import helpers_of, loader_of
from remuda.base.seccomp import CallFilter, can_filter_calls
from remuda.base.users import BrowserUser, claim_user, read_uids, take_identity

_CLONE_NEWUSER = 0x10000000

# What every program may read. /etc has secrets of other programs, so these are only the parts for all.
_PROGRAMS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/snap", "/nix", "/var/lib/snapd")
_SYSTEM = (
    *("/dev", "/proc", "/sys", "/var/cache/fontconfig"),
    *("/run/systemd/resolve", "/run/udev", "/run/opengl-driver"),
)
_ETC = (
    *("X11", "alternatives", "ca-certificates", "ca-certificates.conf", "chromium", "chromium.d"),
    *("crypto-policies", "debian_version", "drirc", "firefox", "firefox-esr", "fonts", "gai.conf", "glvnd"),
    *("gnutls", "group", "gtk-2.0", "gtk-3.0", "gtk-4.0", "host.conf", "hostname", "hosts", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "machine-id", "mime.types", "nsswitch.conf"),
    *("opt", "os-release", "pango", "passwd", "pkcs11", "pki", "protocols", "resolv.conf", "selinux"),
    *("services", "ssl", "timezone", "vulkan", "xdg"),
)
# Chromium's processes share memory in /dev/shm, and every process writes about itself in /proc.
_SYSTEM_WRITABLE = ("/dev", "/proc")

# Where to find libraries, fonts, certificates, proxies and the time.
_KEPT_VARIABLES = frozenset(
    (
        *("PATH", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("LD_LIBRARY_PATH", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"),
    )
)
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_AUTHORITY = "XAUTHORITY"
_KEPT_PREFIXES = ("LC_", "LIBGL_", "GALLIUM_", "MESA_", "MOZ_", "NODE_", "PLAYWRIGHT_", "PW_")

OPENERS = Path(__file__).with_name("openers")
"""The programs that browsers find instead of those that open URLs and files with others, and the one by which
a Chromium is started."""

# What is in the home of a browser, with its rights: where browsers save files unasked, and what Firefox does
# not start without. Beside that, a Firefox looks for the programs that add-ons may start, and for libraries
# that they may have it load.
_HOME = {
    "": 0o500,
    "Downloads": 0o700,
    ".cache": 0o500,
    ".cache/mozilla": 0o700,
    ".mozilla": 0o500,
    ".mozilla/firefox": 0o700,
    ".config": 0o500,
    ".config/mozilla": 0o500,
    ".config/mozilla/firefox": 0o700,
}

# The marks by which a herd finds what it has started. All else that is called so is a herd's own business.
MARKS = ("REMUDA_HERD", "REMUDA_HOLDER")

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class ProtectionConfig:
    """What browsers may do on their machine."""

    browser_reads: str = option(
        "",
        "Further directories that browsers may read, separated by colons, for file:// pages.",
    )
    browser_uids: str = option(
        "58000-58999",
        "Range of user ids for browsers, one for each, if root starts the herd; empty means root.",
    )
    share_display: bool = option(
        False,
        "Have browsers with a window use the display of the herd's environment (DISPLAY, WAYLAND_DISPLAY, "
        "XAUTHORITY) instead of a screen of their own. They can then see all that it shows and type into it. "
        "Not possible where clients need a token.",
    )


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What this machine and the config grant to a herd of this user."""

    is_root: bool
    """Whether root started the herd."""
    uids: range
    """The users that browsers run as; none where that is the herd's own. No browser runs as the first: its
    number is the group in which nodes reach Redis and the artifacts."""
    landlock: int
    """The version of the kernel's Landlock; 0 where there is none."""
    has_namespaces: bool
    """Whether the kernel lets a browser's user make namespaces, which Chromium's sandbox is built from."""
    has_seccomp: bool = False
    """Whether the kernel takes filters of system calls."""
    reads: tuple[Path, ...] = ()
    """What browsers may read besides their own files and the system's."""
    shares_display: bool = False
    """Whether browsers with a window get the display of the herd's environment. They reach it by a Unix
    socket."""

    @property
    def group(self) -> int | None:
        return self.uids[0] if self.uids else None

    @property
    def users(self) -> frozenset[int]:
        """Whose files browsers leave behind: this process's user's, and those of the users that they have."""
        return frozenset((os.geteuid(), *self.uids))

    @property
    def has_sandbox(self) -> bool:
        """Whether Chromium's own sandbox stays on. It refuses to run as root."""
        return self.has_namespaces and bool(self.uids) if self.is_root else True

    @property
    def gains_no_rights(self) -> bool:
        """Whether browsers can never gain rights by a set-user-id program.

        Where ordinary users get no namespaces, Chromium's sandbox is such a program. It protects better than
        what takes this promise: the fence and the filter of system calls.
        """
        return self.has_namespaces or self.is_root

    @property
    def has_fence(self) -> bool:
        """Whether browsers are fenced in by Landlock."""
        return self.landlock > 0 and self.gains_no_rights

    @property
    def has_filter(self) -> bool:
        """Whether the system calls of browsers are filtered."""
        return self.has_seccomp and self.gains_no_rights

    @property
    def has_closed_sockets(self) -> bool:
        """Whether browsers are kept from Unix sockets."""
        return self.has_filter and not self.shares_display

    @property
    def warning(self) -> str:
        """What an operator should know at any time; empty if there is nothing."""
        if self.has_closed_sockets:
            return ""
        return "browsers reach every Unix socket that their user may connect to"

    def __str__(self) -> str:
        users = f"a user of their own ({self.uids[1]} to {self.uids[-1]})" if self.uids else "the herd's user"
        fence = "behind Landlock" if self.has_fence else "without Landlock"
        sockets = "kept from Unix sockets" if self.has_closed_sockets else "not kept from Unix sockets"
        display = ", the herd's display is shared with them" if self.shares_display else ""
        sandbox = "on" if self.has_sandbox else "off"
        return f"browsers run as {users}, {fence}, {sockets}, Chromium's sandbox is {sandbox}{display}"


def protection_of(config: Config) -> Protection:
    """The protection that a herd with this config has here; Misconfigured when its users cannot be used."""
    options = config[ProtectionConfig]
    return _look(
        options.browser_uids, options.browser_reads, os.geteuid(), shares_display=is_display_shared(config)
    )


def is_display_shared(config: Config) -> bool:
    """Whether browsers are to use the display of the herd's environment, and there is one."""
    return config[ProtectionConfig].share_display and any(map(os.environ.get, _DISPLAYS))


@cache
def _look(uids: str, reads: str, euid: int, *, shares_display: bool) -> Protection:
    users = read_uids(uids) if euid == 0 and _libc is not None else range(0)
    return Protection(
        is_root=euid == 0,
        uids=users,
        landlock=landlock_version(),
        has_namespaces=_has_namespaces(users[1] if users else euid),
        has_seccomp=can_filter_calls(),
        reads=tuple(Path(path).expanduser() for path in reads.split(":") if path),
        shares_display=shares_display,
    )


def _has_namespaces(uid: int) -> bool:
    """Whether a process of this user may make a user namespace. Only trying tells: a container's filter of
    system calls may forbid what all settings allow."""
    if _libc is None:
        return False
    pid = os.fork()
    if pid == 0:
        # Nothing but system calls: another thread of the parent's may have held any lock.
        status = 1
        try:
            if os.geteuid() != uid:
                take_identity(uid)
            status = int(_libc.unshare(_CLONE_NEWUSER) != 0)
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@dataclass(frozen=True)
class Confinement:
    """How the processes of one browser are started."""

    protection: Protection
    user: BrowserUser | None = None
    """The user that they become; None where that is the herd's own user."""
    openers: Path = OPENERS
    """The same as `OPENERS`, where its user reaches them."""

    @classmethod
    def claim(cls, protection: Protection) -> "Confinement":
        """A confinement with a user of its own, where browsers have one. Blocks for a few milliseconds."""
        return cls(protection, claim_user(protection.uids[1:]) if protection.uids else None)

    def release(self) -> None:
        """Gives its user back, as far as this process holds it; its processes must be gone."""
        if self.user is not None:
            self.user.release()

    def become(self) -> None:
        """Makes this process, until now root's, one of the browser's user, in the group that reaches Redis
        and the artifacts. What is started `inside` or `beside` is not in that group."""
        assert self.user is not None
        take_identity(self.user.uid, group=self.protection.group)
        os.umask(0o007)

    @property
    def _user_to_become(self) -> BrowserUser | None:
        """The user that a process of the browser's must become, because this process is another's."""
        return None if self.user is None or self.user.uid == os.geteuid() else self.user

    def own(self, path: Path) -> None:
        """Gives a file or directory to the browser's user, and keeps every other out."""
        if user := self._user_to_become:
            descriptor = open_plain(str(path), os.O_RDONLY)
            try:
                is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                os.fchown(descriptor, user.uid, user.uid)
                os.fchmod(descriptor, 0o700 if is_directory else 0o600)
            finally:
                os.close(descriptor)

    def make_home(self, directory: Path) -> None:
        """Makes the home of a browser with this directory."""
        home = home_of(directory)
        for name in _HOME:
            (home / name).mkdir(mode=0o700)
            self.own(home / name)
        for name, mode in _HOME.items():
            with entered(home / name) as descriptor:
                os.fchmod(descriptor, mode)

    @property
    def inherited(self) -> Sequence[int]:
        """Descriptors for what may outlive this process: nothing else gets the user while one is open."""
        return () if self.user is None else (self.user.lock,)

    def inside(
        self,
        directory: Path,
        programs: Iterable[Path] = (),
        *,
        reads: Iterable[Path] = (),
        runs_alone: bool = False,
        dies_with_us: bool = True,
    ) -> Callable[[], None]:
        """A `preexec_fn` for a browser, its driver, and what reads their output. They can write only to the
        directory, read only that, the system's files, these programs and what it `reads`, and run only the
        system's programs and these. One that `runs_alone` runs none of the system's, unless it is a script.
        They connect to no Unix socket, and never wait for the disk."""
        drop = self.beside(dies_with_us=dies_with_us)
        fence = None
        if self.protection.has_fence:
            fence = self._fence(directory, programs, reads, runs_alone=runs_alone)
        call_filter = None
        if self.protection.has_filter:
            call_filter = CallFilter(allows_unix_sockets=self.protection.shares_display)

        def enter() -> None:
            drop()
            if fence is not None:
                fence.enclose_us()
            if call_filter is not None:
                call_filter.filter_us()

        return enter

    def _fence(
        self, directory: Path, programs: Iterable[Path], reads: Iterable[Path], *, runs_alone: bool
    ) -> Fence:
        reading = [*map(Path, _SYSTEM), *(Path("/etc") / name for name in _ETC), *self.protection.reads]
        reading += reads
        systems = [Path(path) for path in _PROGRAMS]
        own = [program.resolve() for program in programs]
        loaders = [loader for loader in map(loader_of, own) if loader is not None]
        if runs_alone and len(loaders) == len(own):
            reading += systems
            running = [*map(helpers_of, own), *loaders]
        else:
            running = [*systems, *(path if path.is_dir() else path.parent for path in own)]
        running.append(self.openers)
        if self.protection.shares_display and (authority := os.environ.get(_AUTHORITY)):
            reading.append(Path(authority))
        home = home_of(directory)
        reading.append(home)
        writing = [directory, *(home / name for name, mode in _HOME.items() if mode & stat.S_IWUSR)]
        return Fence(
            reading=reading,
            running=running,
            writing=[*writing, *map(Path, _SYSTEM_WRITABLE)],
            # What draws on a display tries its abstract socket, and no other if it may not have that.
            allows_unix_sockets=self.protection.shares_display,
        )

    def beside(self, *, dies_with_us: bool = True) -> Callable[[], None]:
        """A `preexec_fn` for what a browser needs and no client commands, such as its screen: it has the
        browser's user, but no fence."""
        user, gid = self._user_to_become, os.getgid()
        gains_no_rights = self.protection.gains_no_rights
        die = die_with_parent(signal.SIGKILL)

        def drop() -> None:
            if user is not None:
                take_identity(user.uid)
            elif os.getegid() != gid:
                os.setresgid(gid, gid, gid)
            if gains_no_rights:
                forbid_new_privileges()
            if dies_with_us:
                die()  # Only now: the kernel forgets it when a process changes its user or group.

        return drop


def home_of(directory: Path) -> Path:
    """The home of the browser with this directory. It is not in there: the browser could rename it, and make
    another one in its place."""
    return directory.with_name(f"{directory.name}-home")


def remove_directory(directory: Path, *, owners: Container[int]) -> None:
    """Removes the directory and the home of a browser, as far as possible, and as these users own them."""
    # The home first: if this process is killed here, it is found again by the directory.
    for path in (home_of(directory), directory):
        with suppress(OSError):
            remove_tree(path, owners=owners)


def unconfined() -> Confinement:
    """For a browser that may do whatever this process may."""
    return Confinement(Protection(is_root=os.geteuid() == 0, uids=range(0), landlock=0, has_namespaces=False))


def browser_environ(
    directory: Path, openers: Path = OPENERS, *, shares_display: bool = False
) -> dict[str, str]:
    """The environment of a browser's processes, with this directory for all files that they make."""
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    if shares_display:
        kept |= {name: os.environ[name] for name in (*_DISPLAYS, _AUTHORITY) if name in os.environ}
    kept["PATH"] = f"{openers}{os.pathsep}{kept.get('PATH', os.defpath)}"
    # Without an address they would start a bus of their own, which starts what files in HOME name.
    kept["DBUS_SESSION_BUS_ADDRESS"] = "disabled:"
    kept["HOME"] = str(home_of(directory))
    return {**kept, **dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), str(directory))}


def _is_kept(name: str) -> bool:
    return name in MARKS or name.upper() in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
