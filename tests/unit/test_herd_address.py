"""Which herd a command asks, and with which token."""

from pathlib import Path

import pytest

from configs import make_config
from remuda.accounts.first import FILE
from remuda.accounts.model import new_token
from remuda.base.errors import InvalidArgument
from remuda.cli.front_door import HerdAddress

GIVEN, IN_URL, IN_ENVIRON, KEPT = (new_token() for _ in range(4))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a herd on this machine."""
    (tmp_path / FILE).write_text(KEPT + "\n")
    return tmp_path


def test_the_config_says_where_the_herd_is_unless_another_is_named() -> None:
    config, environ = make_config(port=5555), {"REMUDA_SERVER": "http://grid.example:4444"}

    assert HerdAddress.find(config, environ={}).url == "http://127.0.0.1:5555"
    assert HerdAddress.find(config, environ=environ).url == "http://grid.example:4444"
    assert (
        HerdAddress.find(config, server="https://other.example", environ=environ).url
        == "https://other.example:443"
    )


@pytest.mark.parametrize(
    ("host", "options", "url"),
    [
        ("0.0.0.0", {}, "http://127.0.0.1:4444"),
        ("::", {}, "http://[::1]:4444"),
        ("grid.example", {"tls_cert": "cert.pem"}, "https://grid.example:4444"),
    ],
)
def test_a_herd_of_this_machine_is_asked_where_it_listens(
    host: str, options: dict[str, str], url: str
) -> None:
    assert HerdAddress.find(make_config(host=host, **options), environ={}).url == url


def test_the_closest_token_counts(data: Path) -> None:
    config, environ = make_config(data=data), {"REMUDA_TOKEN": IN_ENVIRON}
    url = f"http://ann:{IN_URL}@127.0.0.1:4444"

    assert HerdAddress.find(config, server=url, token=GIVEN, environ=environ).token == GIVEN
    assert HerdAddress.find(config, server=url, environ=environ).token == IN_URL
    assert HerdAddress.find(config, environ=environ).token == IN_ENVIRON
    assert HerdAddress.find(config, environ={}).token == KEPT


@pytest.mark.parametrize(
    ("server", "is_this_machines"),
    [
        ("http://localhost:4444", True),
        ("http://[::1]:4444", True),
        ("http://own.example:4444", True),
        ("http://other.example:4444", False),
        ("http://10.0.0.7:4444", False),
    ],
)
def test_the_kept_admin_token_is_shown_to_no_other_machine(
    data: Path, server: str, is_this_machines: bool
) -> None:
    config = make_config(data=data, host="own.example")

    assert HerdAddress.find(config, server=server, environ={}).token == (KEPT if is_this_machines else "")


def test_without_a_kept_token_none_is_shown(tmp_path: Path) -> None:
    assert HerdAddress.find(make_config(data=tmp_path), environ={}).token == ""


def test_a_token_in_the_url_is_never_printed() -> None:
    herd = HerdAddress.parse(f"http://ann:{IN_URL}@127.0.0.1:4444")

    assert herd.url == "http://127.0.0.1:4444"
    assert IN_URL not in repr(herd)


@pytest.mark.parametrize("url", ["ann:{}@127.0.0.1:4444", "ftp://ann:{}@host", "http://ann:{}@:1"])
def test_a_wrong_url_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        HerdAddress.parse(url.format(IN_URL))

    assert IN_URL not in str(caught.value)


@pytest.mark.parametrize("token", ["secret", "rmd_\r\nHost: elsewhere", "ghp_" + "a" * 43])
def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        HerdAddress.parse("http://127.0.0.1:4444", token=token)

    assert token not in str(caught.value)


def test_a_missing_certificate_is_said() -> None:
    with pytest.raises(InvalidArgument, match="not a certificate"):
        HerdAddress.parse("https://127.0.0.1:4444", cacert=Path("nowhere.pem")).tls()
