"""Writes the table of what clients tell a Chromium by default, so that the newest of them are served.

These are Playwright, which sends that to a Selenium grid too, Puppeteer and ChromeDriver. Selenium's clients
add nothing to what the driver says.

Each version starts a browser that only writes down its arguments. Where a package keeps them differs from
version to version, so its files are not read. No script runs when a package is installed.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from remuda.fleet.permits.chromium import DROPPED_SWITCHES, FEATURE_SWITCHES, OWNED_SWITCHES

TABLE = Path(__file__).resolve().parent.parent / "src/remuda/fleet/permits/client_defaults.py"

# The newest release of each minor, or of each major, from this one on.
PLAYWRIGHT = ("playwright-core", (1, 50))
PUPPETEER = ("puppeteer-core", (22,))

_BROWSER = """#!/bin/sh
printf '%s\\n' "$@" >> "$REMUDA_ARGUMENTS"
exit 1
"""
_ASK_PLAYWRIGHT = """
const { chromium } = require(process.argv[2]);
(async () => {
  for (const headless of [true, false])
    await chromium.launch({ headless, executablePath: process.argv[3] }).catch(() => {});
})();
"""
_ASK_PUPPETEER = """
(async () => {
  const { default: puppeteer } = await import(process.argv[2]);
  for (const headless of [true, false, 'shell'])
    await puppeteer.launch({ headless, executablePath: process.argv[3] }).catch(() => {});
})();
"""
# Not what has a path in it: that is of the machine where the client runs.
_SWITCH = re.compile(r"--([a-z0-9-]+)(=[A-Za-z0-9_.-]*)?")


def main() -> None:
    """Write the table from what every version says; its difference is to be reviewed."""
    with tempfile.TemporaryDirectory(prefix="remuda-clients-") as name:
        said = dict(ask_all(Path(name)))
    TABLE.write_text(render(said))
    print(f"wrote {TABLE.name} from {', '.join(said)}; review what it adds")


def ask_all(place: Path) -> Iterator[tuple[str, list[str]]]:
    """Each version, with the arguments with which it starts a browser."""
    browser = place / "browser"
    browser.write_text(_BROWSER)
    browser.chmod(0o755)
    (place / "package.json").write_text("{}")
    scripts = {PLAYWRIGHT: _ASK_PLAYWRIGHT, PUPPETEER: _ASK_PUPPETEER}
    versions = [(client, version) for client in scripts for version in newest(*client)]
    aliases = [f"{client[0]}-{version}@npm:{client[0]}@{version}" for client, version in versions]
    run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *aliases, cwd=place)
    for client, version in versions:
        # A file beside the packages: from there they are found.
        script = place / f"ask-{client[0]}.cjs"
        script.write_text(scripts[client])
        arguments = place / f"{client[0]}-{version}.arguments"
        heard = {**os.environ, "REMUDA_ARGUMENTS": str(arguments)}
        run("node", str(script), f"{client[0]}-{version}", str(browser), cwd=place, env=heard)
        yield f"{client[0]} {version}", arguments.read_text().splitlines()
    yield ask_chromedriver(browser, place / "chromedriver.arguments")


def newest(package: str, since: tuple[int, ...]) -> list[str]:
    """The newest release of every line of releases, the lines being as exact as `since`."""
    listed = json.loads(run("npm", "view", package, "versions", "--json"))
    releases = sorted(tuple(map(int, each.split("."))) for each in listed if re.fullmatch(r"[\d.]+", each))
    lines = {each[: len(since)]: ".".join(map(str, each)) for each in releases}
    return [version for line, version in lines.items() if line >= since]


def ask_chromedriver(browser: Path, arguments: Path) -> tuple[str, list[str]]:
    """The version of this machine's ChromeDriver, and its arguments."""
    program = shutil.which("chromedriver")
    if program is None:
        raise SystemExit("There is no chromedriver on this machine; run 'make setup'")
    version = run(program, "--version").split()[1]
    heard = {**os.environ, "REMUDA_ARGUMENTS": str(arguments)}
    with subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, text=True, env=heard) as driver:
        try:
            assert driver.stdout is not None
            started = (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout)
            port = next(found[1] for found in started if found)
            options = {"goog:chromeOptions": {"binary": str(browser)}}
            body = json.dumps({"capabilities": {"alwaysMatch": options}}).encode()
            # That browser never answers.
            with suppress(HTTPError):
                urlopen(Request(f"http://127.0.0.1:{port}/session", body), timeout=60).close()
        finally:
            driver.kill()
    return f"chromedriver {version}", arguments.read_text().splitlines()


def run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    return subprocess.run(command, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def render(said: Mapping[str, Iterable[str]]) -> str:
    """The module with the table."""
    features: dict[str, set[str]] = {"enable": set(), "disable": set()}
    switches = set()
    for argument in {each for arguments in said.values() for each in arguments}:
        name, _, value = argument.removeprefix("--").partition("=")
        if name in FEATURE_SWITCHES:
            features[name.partition("-")[0]] |= set(value.split(",")) - {""}
        elif _SWITCH.fullmatch(argument) and name not in DROPPED_SWITCHES | OWNED_SWITCHES:
            switches.add(argument)
    return f'''"""What clients tell a Chromium by default. Written by `make clients`, from:

{_fill(said, ", ")}
"""

from remuda.fleet.permits.rules import words

ENABLED_FEATURES = words(
    """
{_fill(sorted(features["enable"]), indent="    ")}
    """
)
DISABLED_FEATURES = words(
    """
{_fill(sorted(features["disable"]), indent="    ")}
    """
)
SWITCHES = words(
    """
{_fill(sorted(switches), indent="    ")}
    """
)
"""Each with its value, which is the only one that the table allows."""
'''


def _fill(names: Iterable[str], separator: str = " ", *, indent: str = "") -> str:
    # The two words of a version stay on one line.
    text = separator.join(name.replace(" ", "\0") for name in names)
    lines = textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines), indent).replace("\0", " ")


if __name__ == "__main__":
    main()
