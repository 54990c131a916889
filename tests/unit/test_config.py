"""The config: flag before environment before file before default, and every bad value is named."""

from pathlib import Path
from typing import Any

import pytest

from remuda.base.config import (
    Config,
    HerdConfig,
    check_variables,
    env_name,
    env_names,
    inherit_config,
    load_config,
    options_of,
)
from remuda.base.errors import Broken, Misconfigured
from remuda.cli.rooms import SECTIONS, VARIABLES

DEFAULTS = Config(*(section() for section in SECTIONS))
NO_ENVIRON: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No remuda.toml but the test's own."""
    monkeypatch.chdir(tmp_path)


def write(text: str) -> Path:
    file = Path("remuda.toml")
    file.write_text(text)
    return file


def test_without_anything_every_option_has_its_default() -> None:
    assert load_config(SECTIONS, environ=NO_ENVIRON) == DEFAULTS


def test_the_default_file_is_read_where_the_process_starts() -> None:
    write("port = 1\n")

    assert load_config(SECTIONS, environ=NO_ENVIRON).value("port") == 1


def test_another_file_can_be_named() -> None:
    write("port = 1\n")
    Path("other.toml").write_text("port = 2\n")

    assert load_config(SECTIONS, environ=NO_ENVIRON, file=Path("other.toml")).value("port") == 2


def test_the_environment_comes_before_the_file() -> None:
    write("port = 1\n")

    assert load_config(SECTIONS, environ={"REMUDA_PORT": "2"}).value("port") == 2


def test_a_flag_comes_before_the_environment() -> None:
    write("port = 1\n")

    assert load_config(SECTIONS, {"port": 3}, environ={"REMUDA_PORT": "2"}).value("port") == 3


def test_a_standard_variable_says_the_same_as_ours() -> None:
    assert (
        load_config(SECTIONS, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}).value("otlp_endpoint")
        == "http://a"
    )


def test_our_variable_comes_before_the_standard_one() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "REMUDA_OTLP_ENDPOINT": "http://b"}

    assert load_config(SECTIONS, environ=environ).value("otlp_endpoint") == "http://b"


def test_the_standard_variable_of_traces_comes_before_that_of_all_signals() -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=2"}

    assert load_config(SECTIONS, environ=environ).value("otlp_headers") == "a=2"


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    assert load_config(SECTIONS, {"port": None}, environ={"REMUDA_PORT": "2"}).value("port") == 2


def test_a_variable_that_is_no_option_is_somebody_elses() -> None:
    assert load_config(SECTIONS, environ={"REMUDA_LIFELINE": "7", "PORT": "2"}) == Config(
        *(section() for section in SECTIONS)
    )


def test_a_variable_that_is_mistyped_is_refused_with_the_nearest_name() -> None:
    environ = {"REMUDA_LIFELINE": "7", "REMUDA_PORT": "2", "PORT": "2", "REMUDA_SLOT": "8"}

    with pytest.raises(Misconfigured, match=r"no variable REMUDA_SLOT; did you mean REMUDA_SLOTS\?"):
        check_variables(SECTIONS, environ, others=VARIABLES)
    with pytest.raises(Misconfigured, match=r"no variable REMUDA_XYZZY$"):
        check_variables(SECTIONS, {"REMUDA_XYZZY": ""}, others=VARIABLES)
    check_variables(SECTIONS, dict.fromkeys(VARIABLES, "x"), others=VARIABLES)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_a_switch_is_understood_as_people_write_it(text: str, value: bool) -> None:
    assert load_config(SECTIONS, environ={"REMUDA_HEADLESS": text}).value("headless") is value


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("port", "http"),
        ("port", ""),
        ("port", "-1"),
        ("port", "65536"),
        ("slots", "-1"),
        ("warm", "-1"),
        ("headless", "maybe"),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_a_bad_variable_is_named(name: str, bad: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{env_name(name)} is '{bad}'"):
        load_config(SECTIONS, environ={env_name(name): bad})


def test_where_there_is_a_choice_a_bad_value_is_answered_with_it() -> None:
    with pytest.raises(Misconfigured, match=r"--browser is 'opera'; it can be chromium, firefox, webkit$"):
        load_config(SECTIONS, {"browser": "opera"}, environ={})


def test_a_bad_flag_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"^--log-level is 'loud'"):
        load_config(SECTIONS, {"log_level": "loud"}, environ=NO_ENVIRON)


@pytest.mark.parametrize("line", ["port = 'http'", "data = 5", "host = 5", "port = true", "headless = 'x'"])
def test_a_bad_value_in_the_file_is_named_with_the_file(line: str) -> None:
    write(line)

    with pytest.raises(Misconfigured, match=rf"^{line.split()[0]} in remuda\.toml is .*; it (must|can) be "):
        load_config(SECTIONS, environ=NO_ENVIRON)


def test_a_file_with_unknown_options_names_them() -> None:
    write("prot = 1\nport = 2\nhots = 3\n")

    with pytest.raises(Misconfigured, match="unknown options: hots, prot"):
        load_config(SECTIONS, environ=NO_ENVIRON)


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"[port"])
def test_a_file_that_is_no_toml_is_named(content: bytes) -> None:
    Path("remuda.toml").write_bytes(content)

    with pytest.raises(Misconfigured, match=r"^remuda\.toml cannot be read: "):
        load_config(SECTIONS, environ=NO_ENVIRON)


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(Misconfigured, match=r"no config file nowhere\.toml"):
        load_config(SECTIONS, environ=NO_ENVIRON, file=Path("nowhere.toml"))


def test_a_directory_is_no_file() -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        load_config(SECTIONS, environ=NO_ENVIRON, file=Path())


def test_a_name_from_the_documents_is_understood() -> None:
    environ = {"MAX_CONCURRENT_SESSIONS": "7", "DEFAULT_BROWSER_TYPE": "firefox", "HEADLESS": "false"}

    config = load_config(SECTIONS, environ=environ)

    assert [config.value(name) for name in ("playwright_concurrent", "playwright_browser", "headless")] == [
        7,
        "firefox",
        False,
    ]


def test_an_options_own_variable_comes_before_the_documents_name() -> None:
    environ = {"MAX_LIFETIME_SESSIONS": "7", "REMUDA_PLAYWRIGHT_LIFETIME": "8"}

    assert load_config(SECTIONS, environ=environ).value("playwright_lifetime") == 8


def test_the_documents_name_comes_before_the_file() -> None:
    write("playwright_lifetime = 7\n")

    assert load_config(SECTIONS, environ={"MAX_LIFETIME_SESSIONS": "8"}).value("playwright_lifetime") == 8


def test_a_bad_value_is_named_as_it_was_given() -> None:
    with pytest.raises(Misconfigured, match=r"^MAX_CONCURRENT_SESSIONS is '0'"):
        load_config(SECTIONS, environ={"MAX_CONCURRENT_SESSIONS": "0"})


def test_no_two_options_share_a_variable() -> None:
    names = [name for option in options_of(SECTIONS) for name in env_names(option)]

    assert len(names) == len(set(names))


def test_a_workers_key_must_outlive_two_lost_beats() -> None:
    with pytest.raises(Misconfigured, match="REDIS_KEY_TTL"):
        load_config(SECTIONS, environ={"HEARTBEAT_INTERVAL": "10", "REDIS_KEY_TTL": "29"})

    assert (
        load_config(SECTIONS, environ={"HEARTBEAT_INTERVAL": "10", "REDIS_KEY_TTL": "30"}).value(
            "playwright_beat"
        )
        == 10
    )


def unlike(value: Any) -> Any:
    """Another value that the option may have."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2
    return Path("/elsewhere") if isinstance(value, Path) else "elsewhere"


def test_a_child_process_loads_the_very_same_config() -> None:
    words = {
        "auth": "on",
        "log_level": "debug",
        "log_format": "json",
        "metering": "off",
        "metering_precision": "5",
        "browser": "firefox",
        "playwright_browser": "firefox",
        "playwright_isolation": "own",
        "record_size": "640x480",
    }
    changed = {option.name: unlike(option.default) for option in options_of(SECTIONS)} | words
    config = load_config(SECTIONS, changed, environ={})

    assert load_config(SECTIONS, environ=config.environ()) == config


def test_a_child_process_is_not_swayed_by_the_file_and_environment_that_a_flag_overruled() -> None:
    write("port = 1\n")
    environ = {"REMUDA_SLOTS": "9"}
    config = load_config(SECTIONS, {"port": HerdConfig.port, "slots": 0}, environ=environ)

    assert load_config(SECTIONS, environ=environ | config.environ()) == config


def test_every_option_says_what_it_means() -> None:
    for option in options_of(SECTIONS):
        assert option.metadata["meaning"].endswith(".")


def test_options_are_found_by_section_and_by_name() -> None:
    config = Config(HerdConfig(port=1))

    assert config[HerdConfig].port == config.value("port") == 1
    assert config.replace(port=2)[HerdConfig] == HerdConfig(port=2)


def test_a_section_that_was_not_loaded_is_not_taken_for_its_defaults() -> None:
    with pytest.raises(Broken, match="HerdConfig"):
        Config()[HerdConfig]


def test_what_a_parent_hands_down_is_not_swayed_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("port = 1\nno_such_option = 2\n")
    for name, value in Config(HerdConfig(port=3)).environ().items():
        monkeypatch.setenv(name, value)

    assert inherit_config([HerdConfig])[HerdConfig].port == 3


def test_no_two_sections_share_an_option() -> None:
    names = [option.name for option in options_of(SECTIONS)]

    assert len(names) == len(set(names))
