"""What `make setup` decides: when to install again, where uv looks, which Debian packages to ask for."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import setup

SETUP_SH = Path(setup.__file__).with_name("setup.sh")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose `.venv` was just set up."""
    for name in setup.INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"content of {name}")
    bin_directory = tmp_path / ".venv/bin"
    bin_directory.mkdir(parents=True)
    (bin_directory / "remuda").touch()
    (bin_directory / "python").touch()
    stamp(tmp_path).write_text(setup.fingerprint(tmp_path))
    return tmp_path


def stamp(project: Path) -> Path:
    return project / ".venv/setup.stamp"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that would have been run."""
    commands: list[str] = []
    monkeypatch.setattr(setup, "run", lambda command, _=None: commands.append(" ".join(map(str, command))))
    return commands


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this a machine that has just these commands, for a user of this id."""

    def machine(*commands: str, uid: int = 0) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in commands else None)
        monkeypatch.setattr(os, "geteuid", lambda: uid)

    return machine


def test_a_second_run_installs_nothing(project: Path, ran: list[str]) -> None:
    setup.ready_venv(project)

    assert ran == []


@pytest.mark.parametrize("name", setup.INPUTS)
def test_a_change_of_an_input_installs_again(project: Path, name: str) -> None:
    (project / name).write_text("something else")

    assert not setup.is_current(project, stamp(project))


def test_a_venv_without_remuda_is_set_up_again(project: Path) -> None:
    (project / ".venv/bin/remuda").unlink()

    assert not setup.is_current(project, stamp(project))


def test_a_venv_that_came_along_with_a_copied_checkout_is_set_up_again(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (".venv", "tools", "pyproject.toml", setup.LOCK):
        (project / name).rename(copy / name)

    assert not setup.is_current(copy, stamp(copy))


def test_a_half_made_venv_is_not_usable(project: Path) -> None:
    assert not setup.is_usable(project / ".venv")


def test_a_failed_installation_is_tried_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / setup.LOCK).write_text("a new lock")

    def fail(*_: object) -> None:
        raise setup.SetupError("no network")

    monkeypatch.setattr(setup, "is_usable", lambda _: True)
    monkeypatch.setattr(setup, "run", fail)
    with pytest.raises(setup.SetupError):
        setup.ready_venv(project)

    assert not setup.is_current(project, stamp(project))


def test_uv_looks_where_pip_is_configured_to_look() -> None:
    listing = "\n".join(
        [
            "global.cert='/etc/ssl/mirror.pem'",
            "global.extra-index-url='\\nfile:///one/simple\\nfile:///two/simple'",
            "global.index-url='https://user:secret@mirror.example/simple'",
            "global.timeout='60'",
        ]
    )

    assert setup.uv_environment(listing) == {
        "UV_DEFAULT_INDEX": "https://user:secret@mirror.example/simple",
        "UV_EXTRA_INDEX_URL": "file:///one/simple file:///two/simple",
        "SSL_CERT_FILE": "/etc/ssl/mirror.pem",
    }


def test_pips_environment_wins_over_its_files() -> None:
    listing = ":env:.index-url='https://env.example/simple'\nglobal.index-url='https://file.example/simple'\n"

    assert setup.uv_environment(listing) == {"UV_DEFAULT_INDEX": "https://env.example/simple"}


def test_an_unconfigured_pip_leaves_uv_alone() -> None:
    assert setup.uv_environment("") == {}


def test_nothing_is_missing_where_every_command_is_there(only: Callable[..., None]) -> None:
    only(
        *("google-chrome", "chromedriver", "ffmpeg"),
        *("chrome-headless-shell", "firefox", "Xvfb", "redis-check-rdb", "npm"),
    )

    assert setup.missing_packages(["browsers", "tests"]) == []


def test_what_is_missing_is_named_by_package(only: Callable[..., None]) -> None:
    only("chromium")

    assert setup.missing_packages(["browsers", "tests"]) == [
        *("chromium-driver", "ffmpeg"),
        *("chromium-headless-shell", "firefox-esr", "xvfb", "redis-tools", "npm"),
    ]


def test_groups_that_were_not_asked_for_are_not_looked_at(only: Callable[..., None]) -> None:
    only()

    assert setup.missing_packages([]) == []


def test_apt_is_not_called_when_nothing_is_missing(only: Callable[..., None], ran: list[str]) -> None:
    only("apt-get", "chromium", "chromedriver", "ffmpeg")

    setup.ready_packages(["browsers"])

    assert ran == []


def test_root_gets_the_packages_installed_without_questions(
    only: Callable[..., None], ran: list[str]
) -> None:
    only("apt-get")

    setup.ready_packages(["browsers"])

    update, install = ran
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends chromium chromium-driver ffmpeg")


def test_others_are_told_the_exact_command(only: Callable[..., None], ran: list[str]) -> None:
    only("apt-get", "chromium", uid=1000)

    with pytest.raises(setup.SetupError, match=r"run: .*sudo apt-get install -y chromium-driver ffmpeg$"):
        setup.ready_packages(["browsers"])

    assert ran == []


def test_without_apt_the_packages_are_still_named(only: Callable[..., None]) -> None:
    only()

    with pytest.raises(setup.SetupError, match="chromium chromium-driver"):
        setup.ready_packages(["browsers"])


def test_locked_packages_of_npm_are_installed_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ran: list[str]
) -> None:
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    lock = tmp_path / "node/package-lock.json"
    (tmp_path / "node/node_modules").mkdir(parents=True)
    lock.write_text("{}")

    for _ in range(2):
        setup.ready_node(lock.parent)
    assert [command.split(" --prefix")[0] for command in ran] == ["npm ci"]

    lock.write_text('{"changed": true}')
    setup.ready_node(lock.parent)
    assert len(ran) == 2


def test_a_failing_command_shows_what_it_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(setup.SetupError, match="status 3"):
        setup.run(["sh", "-c", "echo out; echo err >&2; exit 3"])

    assert capsys.readouterr().err == "out\nerr\n"


def test_an_unknown_group_is_one_line_and_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["browser"]) == 1

    assert capsys.readouterr().err == "setup: no such group: browser; there are browsers, tests, bench\n"


def interpreter(path: Path, *, is_new_enough: bool, is_system: bool = False) -> None:
    """A program that says yes or no to what is asked with -c, and shows how else it was called."""
    path.parent.mkdir(exist_ok=True)
    asks_for_system = """case "$2" in *"'/usr'"*) """ + f"exit {0 if is_system else 1};; esac"
    answer = f"{asks_for_system}; exit 0" if is_new_enough else "exit 1"
    path.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then {answer}; fi\necho "$0 $*"\n')
    path.chmod(0o755)


def run_setup_sh(*path: Path) -> subprocess.CompletedProcess[str]:
    for tool in ("sh", "dirname"):
        (path[0] / tool).symlink_to(f"/usr/bin/{tool}")
    environment = {**os.environ, "PATH": ":".join(map(str, path))}
    return subprocess.run(
        [SETUP_SH, "tests"], env=environment, capture_output=True, text=True, check=False, timeout=30
    )


def test_a_python_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", is_new_enough=False, is_system=True)
    interpreter(tmp_path / "python3.11", is_new_enough=True)

    assert run_setup_sh(tmp_path).stdout == f"{tmp_path}/python3.11 tools/setup.py tests\n"


def test_the_python_of_the_system_comes_before_those_of_version_managers(tmp_path: Path) -> None:
    shims, system = tmp_path / "shims", tmp_path / "system"
    interpreter(shims / "python3", is_new_enough=True)
    interpreter(system / "python3", is_new_enough=True, is_system=True)

    assert run_setup_sh(shims, system).stdout == f"{system}/python3 tools/setup.py tests\n"


def test_without_a_python_there_is_one_line_that_says_so(tmp_path: Path) -> None:
    ended = run_setup_sh(tmp_path)

    assert ended.returncode == 1
    assert ended.stderr.startswith("setup: Remuda needs Python 3.11 or newer")
    assert ended.stderr.count("\n") == 1
