"""The table of what clients tell a Chromium by default: what goes into it, of all that they say."""

from tools.make_client_defaults import render


def table(*arguments: str) -> dict[str, frozenset[str]]:
    """The names of a table that is written from these arguments."""
    names: dict[str, frozenset[str]] = {}
    exec(render({"client 1.0": arguments[:1], "client 2.0": arguments[1:]}), names)
    return names


def test_the_features_of_all_versions_are_in_the_table() -> None:
    written = table(
        "--enable-features=A,B", "--enable-features=B,C", "--disable-features=D", "--enable-blink-features=E"
    )

    assert written["ENABLED_FEATURES"] == {"A", "B", "C", "E"}
    assert written["DISABLED_FEATURES"] == {"D"}
    assert written["SWITCHES"] == frozenset()


def test_a_switch_is_in_the_table_unless_it_is_of_the_machine_or_the_herds_own() -> None:
    written = table(
        *("--mute-audio", "--password-store=basic"),
        *(
            "--user-data-dir=/tmp/x",
            "--load-extension=C:\\x",
            "--no-sandbox",
            "--remote-debugging-io-pipes=3,4",
        ),
        *("--remote-debugging-port=0", "data:,", "about:blank", "--Upper", "-x"),
    )

    assert written["SWITCHES"] == {"--mute-audio", "--password-store=basic"}
