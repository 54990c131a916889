"""Which browser Playwright is told to launch, on made-up machines."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

from configs import make_config
from remuda.base.errors import InvalidArgument, Misconfigured
from remuda.fleet import browsers as names
from remuda.fleet.browsers import QUIET_ARGS
from remuda.playwright.browsers import find_launch, find_tailored_launch, servable
from remuda.playwright.driver import (
    BROWSERS_PATH,
    builds_directory,
    has_build,
    playwright_version,
    serve_environ,
)
from remuda.playwright.server import with_host

Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this a machine that has just these commands, and no build of Playwright's."""

    def make(*commands: str) -> Path:
        for command in commands:
            (tmp_path / command).write_text("#!/bin/sh\n")
            (tmp_path / command).chmod(0o755)
        return tmp_path

    monkeypatch.setattr(names, "USUAL_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(BROWSERS_PATH, str(tmp_path / "builds"))
    return make


def install_build(name: str) -> None:
    """Does what Playwright's own installation does at its end."""
    package = Path(compute_driver_executable()[1]).parent
    listed = json.loads((package / "browsers.json").read_text())["browsers"]
    (revision,) = [each["revision"] for each in listed if each["name"] == name]
    directory = builds_directory() / f"{name.replace('-', '_')}-{revision}"
    directory.mkdir(parents=True)
    (directory / "INSTALLATION_COMPLETE").touch()


def test_without_a_window_the_headless_shell_is_preferred(machine: Machine) -> None:
    here = machine("chromium", "chromium-headless-shell")

    assert find_launch("chromium", make_config()).program == here / "chromium-headless-shell"
    assert find_launch("chromium", make_config(headless=False)).program == here / "chromium"


def test_chromium_is_launched_quietly_and_in_its_sandbox_where_that_is_possible(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine("chromium")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert find_launch("chromium", make_config(chromium_args="--lang=de --mute-audio")).options == {
        "headless": True,
        "executablePath": str(here / "chromium"),
        "args": [*QUIET_ARGS, "--lang=de", "--mute-audio"],
        "chromiumSandbox": True,
    }
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_launch("chromium", make_config(browser_uids="")).options["chromiumSandbox"] is False


def test_a_path_of_the_config_wins(machine: Machine) -> None:
    here = machine("chromium", "chromium-headless-shell", "firefox-esr", "mine")
    install_build("chromium-headless-shell")
    install_build("firefox")

    config = make_config(chromium=str(here / "mine"), firefox="mine")
    assert find_launch("chromium", config).program == here / "mine"
    assert find_launch("firefox", config).program == here / "mine"


def test_a_firefox_of_the_machine_is_driven_over_bidi(machine: Machine) -> None:
    here = machine("firefox-esr")

    assert find_launch("firefox", make_config()).options == {
        "headless": True,
        "executablePath": str(here / "firefox-esr"),
        "channel": "moz-firefox",
    }


@pytest.mark.parametrize(
    ("build", "browser", "channel"),
    [
        ("chromium-headless-shell", "chromium", None),
        ("chromium", "chromium", "chromium"),
        ("firefox", "firefox", None),
        ("webkit", "webkit", None),
    ],
)
def test_a_build_of_playwrights_own_is_preferred_to_the_machines(
    machine: Machine, build: str, browser: str, channel: str | None
) -> None:
    machine("chromium", "chromium-headless-shell", "firefox-esr")
    install_build(build)

    launch = find_launch(browser, make_config())

    assert launch.program is None
    assert "executablePath" not in launch.options
    assert launch.options.get("channel") == channel


def test_a_half_finished_installation_is_no_build(machine: Machine) -> None:
    machine()
    install_build("webkit")
    for marker in builds_directory().rglob("INSTALLATION_COMPLETE"):
        marker.unlink()

    assert not has_build("webkit")


@pytest.mark.parametrize(
    ("browser", "advice"),
    [
        ("chromium", "apt-get install chromium-headless-shell"),
        ("firefox", "apt-get install firefox-esr"),
        ("webkit", "playwright install --with-deps webkit"),
    ],
)
def test_a_browser_that_is_not_here_comes_with_advice(machine: Machine, browser: str, advice: str) -> None:
    machine()

    with pytest.raises(Misconfigured, match=advice):
        find_launch(browser, make_config())


def test_a_client_gets_a_window_only_where_there_can_be_a_screen(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The operator's is not theirs.
    monkeypatch.setenv("DISPLAY", ":7")
    machine("chromium")
    with pytest.raises(InvalidArgument, match="'headless' cannot be false here: Xvfb is not installed"):
        find_tailored_launch("chromium", make_config(), {"headless": False})

    machine("Xvfb")

    assert find_tailored_launch("chromium", make_config(), {"headless": False}).has_window


def test_a_browser_that_does_not_exist_is_refused(machine: Machine) -> None:
    machine()

    with pytest.raises(Misconfigured, match="'opera'; it has chromium, firefox, webkit"):
        find_launch("opera", make_config())


def test_all_that_can_be_served_is_listed(machine: Machine) -> None:
    machine("chromium", "firefox")

    assert [launch.browser for launch in servable(make_config())] == ["chromium", "firefox"]


def test_playwrights_version_is_one_that_drives_a_firefox_of_the_machine() -> None:
    major, minor, *_ = map(int, playwright_version().split("."))

    assert (1, 62) <= (major, minor) < (1, 65)


def test_others_reach_a_worker_under_its_private_name() -> None:
    endpoint = "ws://127.0.0.1:3131/playwright/chromium/x"

    assert with_host(endpoint, "worker-1") == "ws://worker-1:3131/playwright/chromium/x"
    assert with_host(endpoint, "fd00::7") == "ws://[fd00::7]:3131/playwright/chromium/x"


def test_playwrights_own_ffmpeg_comes_before_the_machines(machine: Machine) -> None:
    here = machine("ffmpeg")
    install_build("ffmpeg")
    install_build("webkit")
    home = here / "home"
    home.mkdir()

    builds = Path(serve_environ(home)[BROWSERS_PATH])

    assert {each.resolve() for each in builds.iterdir()} == set((here / "builds").iterdir())


def test_without_a_build_of_its_own_playwright_is_given_the_machines_ffmpeg(machine: Machine) -> None:
    here = machine("ffmpeg")
    install_build("chromium")
    home = here / "home"
    home.mkdir()

    builds = Path(serve_environ(home)[BROWSERS_PATH])

    (ffmpeg,) = builds.glob("ffmpeg-*/ffmpeg-*")
    (here / "ffmpeg").write_text('#!/bin/sh\necho "$@"\n')
    assert subprocess.check_output([ffmpeg, "-i", "a b"], text=True) == "-i a b\n"
    assert len(list(builds.glob("chromium-*/INSTALLATION_COMPLETE"))) == 1
