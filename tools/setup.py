"""Makes this machine ready: `.venv` with the locked packages and Remuda itself, then the Debian packages
of the groups named on the command line, and for the tests a client from npm.

It runs before anything is installed, so it uses the standard library only; with nothing to do it takes
a few milliseconds and touches nothing.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements.lock"
BOOTSTRAP_LOCK = "tools/bootstrap.lock"
# What decides the content of `.venv`; a change in any of them installs again.
INPUTS = (LOCK, BOOTSTRAP_LOCK, "pyproject.toml", "tools/setup.py")

# Debian package -> commands of which one must be there; so Google's Chrome, or a browser that came another
# way than by apt, is left in peace.
GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "browsers": {
        "chromium": ("chromium", "chromium-browser", "google-chrome"),
        "chromium-driver": ("chromedriver",),
        # For videos of sessions.
        "ffmpeg": ("ffmpeg",),
    },
    # The other browsers are for the tests: a first `make up` would take twice as long with them.
    # redis-check-rdb is the whole server: started under the name redis-server it serves. The package
    # redis-server would also start a system service on the default port.
    "tests": {
        "chromium-headless-shell": ("chromium-headless-shell", "chrome-headless-shell"),
        "firefox-esr": ("firefox-esr", "firefox"),
        "xvfb": ("Xvfb",),
        "redis-tools": ("redis-server", "redis-check-rdb"),
        "npm": ("npm",),
    },
    "bench": {"nginx": ("nginx",), "wget": ("wget",), "wrk": ("wrk",)},
}

# Where a group has packages of npm, locked; the node that runs them comes with Python's Playwright.
NODE = {"tests": "tests/acceptance/node"}

# pip's option -> the variable by which uv takes the same. uv reads no pip configuration by itself, and a
# machine that reaches its packages through a mirror says so to pip.
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "cert": "SSL_CERT_FILE",
}
PIP_SECTIONS = ("global", "install", ":env:")  # Later wins, as in pip.


class SetupError(Exception):
    """What the user must know, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status; the arguments are groups of Debian packages to see to as well."""
    groups = sys.argv[1:] if arguments is None else arguments
    try:
        if unknown := set(groups) - GROUPS.keys():
            raise SetupError(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
        ready_venv(ROOT)
        ready_packages(groups)
        for group in groups:
            if group in NODE:
                ready_node(ROOT / NODE[group])
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def ready_venv(root: Path) -> None:
    """Install the locked packages into `.venv`, unless they are there."""
    venv = root / ".venv"
    stamp = venv / "setup.stamp"
    if is_current(root, stamp):
        return
    if not is_usable(venv):
        say("making .venv")
        make_venv(venv)
    say(f"installing the packages of {LOCK} into .venv")
    install(root, venv)
    stamp.write_text(fingerprint(root))


def is_current(root: Path, stamp: Path) -> bool:
    """Whether `.venv` was made from just these inputs."""
    if not stamp.exists() or not (root / ".venv/bin/remuda").exists():
        return False
    return stamp.read_text() == fingerprint(root)


def fingerprint(root: Path) -> str:
    """A digest of all that decides what `.venv` holds."""
    digest = hashlib.sha256()
    # The place and the interpreter count too: a venv that was copied, or whose Python was replaced by the
    # next release of Debian, still looks alive but runs other code or finds no packages.
    digest.update(f"{root}\n{(root / '.venv/bin/python').resolve()}\n".encode())
    for name in INPUTS:
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


def is_usable(venv: Path) -> bool:
    """Whether packages can be installed into this venv as it stands."""
    pip = venv / "bin/pip"
    if not pip.exists() or str(venv) not in pip.read_text():
        return False
    return is_success([venv / "bin/python", "-m", "pip", "--version"])


def make_venv(venv: Path) -> None:
    """Make an empty venv; Debian keeps the means for that in a package of its own."""
    if not is_success([sys.executable, "-c", "import ensurepip"]):
        apt_install(["python3-venv"], purpose="to make .venv")
    run([sys.executable, "-m", "venv", "--clear", venv])


def install(root: Path, venv: Path) -> None:
    """Install the lock, hash by hash, and the project itself, editable.

    pip only fetches uv, which installs the same hashes more than ten times faster.
    """
    python = venv / "bin/python"
    # At -qq pip still shows errors, but no warnings about empty extra indexes.
    run([python, "-m", "pip", "install", "-qq", "--require-hashes", "-r", root / BOOTSTRAP_LOCK])
    environment = {**uv_environment(run([python, "-m", "pip", "config", "list"])), **os.environ}
    uv: list[str | Path] = [venv / "bin/uv", "pip"]
    # By default uv stops at the first index that knows a name, where pip looks at all. With every file's
    # hash locked, looking at all cannot be tricked.
    every_index = ["--index-strategy", "unsafe-best-match"]
    run([*uv, "sync", "-q", "--python", python, "--require-hashes", *every_index, root / LOCK], environment)
    run([*uv, "install", "-q", "--python", python, "--no-deps", *every_index, "-e", root], environment)


def uv_environment(pip_config: str) -> dict[str, str]:
    """The variables that make uv look where pip looks, from what `pip config list` prints."""
    values: dict[tuple[str, str], str] = {}
    for line in pip_config.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        values[section, option] = str(ast.literal_eval(value))
    environment = {}
    for section in PIP_SECTIONS:
        for option, variable in UV_VARIABLES.items():
            if (section, option) in values:
                environment[variable] = " ".join(values[section, option].split())
    return environment


def ready_packages(groups: Iterable[str]) -> None:
    """Install the Debian packages of these groups of which no command is there."""
    groups = list(groups)
    if missing := missing_packages(groups):
        apt_install(missing, purpose=f"for {' and '.join(groups)}")


def missing_packages(groups: Iterable[str]) -> list[str]:
    """The packages of these groups whose commands this machine lacks."""
    return [
        package
        for group in groups
        for package, commands in GROUPS[group].items()
        if not any(shutil.which(command) for command in commands)
    ]


def ready_node(directory: Path) -> None:
    """Install the locked packages of npm, unless they are there."""
    lock, stamp = directory / "package-lock.json", directory / "node_modules/setup.stamp"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return
    say(f"installing the packages of {directory.relative_to(ROOT)}/package-lock.json with npm")
    run(["npm", "ci", "--prefix", directory, "--ignore-scripts", "--no-audit", "--no-fund"])
    stamp.write_bytes(lock.read_bytes())


def apt_install(packages: Sequence[str], *, purpose: str) -> None:
    """Install Debian packages, or tell the user how to."""
    wanted = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise SetupError(f"{wanted} (Debian's names) needed {purpose}; install, then run this again")
    if os.geteuid() != 0:
        command = f"sudo apt-get update && sudo apt-get install -y {wanted}"
        raise SetupError(f"{wanted} needed {purpose}; run: {command}")
    say(f"installing {wanted} with apt-get")
    # Another apt may be at work on a machine that has just started: wait for it.
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run([*apt, "update"], environment)
    run([*apt, "install", "-y", "--no-install-recommends", *packages], environment)


def run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """What a command printed; when it fails, the user sees that instead."""
    words = [str(word) for word in command]
    ended = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode != 0:
        sys.stderr.write(ended.stdout)
        raise SetupError(f"this failed with status {ended.returncode}: {' '.join(words)}")
    return ended.stdout


def is_success(command: Sequence[str | Path]) -> bool:
    """Whether a command can be run and ends well."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def say(what: str) -> None:
    """Tell the user what takes a while."""
    print(f"setup: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
