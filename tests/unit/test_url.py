"""Redis URLs: what each form means, what is wrong with a bad one, and that no password is ever shown."""

import os
import ssl
from pathlib import Path

import pytest

from remuda.base.errors import Misconfigured
from remuda.store.url import parse_url, reach_by_group

SECRET = "s3cr3t"


def test_the_plain_form_names_host_port_and_database() -> None:
    url = parse_url("redis://db.example:7000/3")

    assert (url.hosts, url.db, url.tls) == ((("db.example", 7000),), 3, None)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("redis://", ("127.0.0.1", 6379)),
        ("redis://db", ("db", 6379)),
        ("redis://db/", ("db", 6379)),
        ("redis://:7000", ("127.0.0.1", 7000)),
        ("redis://[::1]:7000", ("::1", 7000)),
        ("redis://[::1]", ("::1", 6379)),
    ],
)
def test_what_is_left_out_has_the_usual_value(text: str, host: tuple[str, int]) -> None:
    url = parse_url(text)

    assert (url.hosts, url.db, url.username, url.password) == ((host,), 0, "", "")


@pytest.mark.parametrize(
    ("credentials", "username", "password"),
    [
        (":pw@", "", "pw"),
        ("bob:pw@", "bob", "pw"),
        ("bob:p%40w%2F%3A@", "bob", "p@w/:"),
        ("bob:p@w@", "bob", "p@w"),
        ("bob:p:w@", "bob", "p:w"),
    ],
)
def test_credentials_are_understood(credentials: str, username: str, password: str) -> None:
    url = parse_url(f"redis://{credentials}db")

    assert (url.username, url.password, url.hosts) == (username, password, (("db", 6379),))


def test_a_unix_socket_has_a_path() -> None:
    url = parse_url("unix:///run/red%20is/redis.sock?db=2")

    assert (url.path, url.db, url.hosts) == ("/run/red is/redis.sock", 2, ())


def test_a_unix_socket_can_have_a_password() -> None:
    url = parse_url("unix://:pw@/run/redis.sock")

    assert (url.path, url.password) == ("/run/redis.sock", "pw")


def test_sentinels_are_listed_with_the_service_they_watch() -> None:
    url = parse_url("redis+sentinel://bob:pw@a:1,b,c:3/main/4")

    assert url.hosts == (("a", 1), ("b", 26379), ("c", 3))
    assert (url.service, url.db, url.username, url.password) == ("main", 4, "bob", "pw")


def test_tls_checks_the_servers_certificate() -> None:
    tls = parse_url("rediss://db").tls

    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname


def test_tls_can_be_told_not_to_check() -> None:
    tls = parse_url("rediss://db?verify=no").tls

    assert tls is not None
    assert tls.verify_mode is ssl.CERT_NONE


def test_sentinels_can_be_asked_for_a_master_with_tls() -> None:
    url = parse_url("rediss+sentinel://a/main")

    assert url.tls is not None
    assert url.sentinel_tls is None


def test_sentinels_have_credentials_and_tls_of_their_own() -> None:
    url = parse_url(
        "rediss+sentinel://bob:pw@a/main?sentinel_username=eve&sentinel_password=x%26y&sentinel_tls=yes"
    )

    assert (url.username, url.password) == ("bob", "pw")
    assert (url.sentinel_username, url.sentinel_password) == ("eve", "x&y")
    assert url.sentinel_tls is not None


@pytest.mark.parametrize("path", ["/main", "/main/1/2"])
def test_no_text_shows_the_password_of_the_sentinels(path: str) -> None:
    text = f"redis+sentinel://a{path}?sentinel_password={SECRET}"
    try:
        shown = f"{parse_url(text)} {parse_url(text)!r}"
    except Misconfigured as error:
        shown = error.message

    assert SECRET not in shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must start with one of redis://"),
        ("localhost:6379", "must start with one of"),
        ("http://db", "must start with one of"),
        ("redis://db:port", "port"),
        ("redis://db:99999", "port"),
        ("redis://db/first", "database"),
        ("redis://db/-1", "database"),
        ("redis://db/1/2", "database"),
        ("redis://[::1", "IPv6"),
        ("redis://db?db=3", "options: password_file"),
        ("rediss://db?verfiy=no", "options: ca, cert, key, password_file, verify"),
        ("unix://", "absolute path"),
        ("unix:///", "absolute path"),
        ("unix:redis.sock", "absolute path"),
        ("unix://run/redis.sock", "absolute path"),
        ("unix:///run/redis.sock?db=x", "database"),
        ("redis+sentinel://a:1,b:2", "no service"),
        ("redis+sentinel://a:1,b:2/", "no service"),
        ("redis+sentinel://a/main?sentinel_tls=yes", "options: password_file, sentinel_password, sentinel_p"),
        ("rediss+sentinel://a/main?sentinel_tls=on", "must be yes or no"),
        ("redis://a?sentinel_password=x", "options: password_file"),
        ("rediss://db?ca=/nowhere/ca.pem", "its ca, /nowhere/ca.pem, cannot be used: no such file"),
    ],
)
def test_a_bad_url_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(Misconfigured, match="is not a valid Redis URL") as caught:
        parse_url(text)

    assert problem in caught.value.message


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")

    with pytest.raises(Misconfigured):
        parse_url(f"rediss://db?ca={tmp_path / 'ca.pem'}")


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{SECRET}@db",
        f"redis://bob:{SECRET}@db",
        f"redis://bob:x@{SECRET}@db",
        f"redis+sentinel://bob:{SECRET}@a:1,b:2/main",
        f"unix://:{SECRET}@/run/redis.sock",
        f"redis://bob:x%2F{SECRET}@db",
    ],
)
def test_a_url_never_shows_its_password(text: str) -> None:
    url = parse_url(text)

    assert SECRET in url.password
    for shown in (str(url), repr(url), f"{url}"):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "text",
    [
        f"http://bob:{SECRET}@db",
        f"redis://bob:{SECRET}@db:port",
        f"redis://bob:x/{SECRET}@db",
        f"redis://bob:{SECRET}/x@db",
        f"redis://bob:{SECRET}?x@db",
        f"redis://bob:{SECRET}#x@db",
        f"redis://bob:[{SECRET}@db",
        f"unix://bob:{SECRET}/x@/run/redis.sock",
        f"redis://bob:x/y?{SECRET}=1@db",
    ],
)
def test_an_error_never_shows_the_password_of_a_bad_url(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse_url(text)

    assert SECRET not in caught.value.message


@pytest.mark.parametrize("form", ["unix:///run/a.sock?", "redis://ann@db/3?", "redis+sentinel://db/main?"])
def test_a_password_can_be_in_a_file(tmp_path: Path, form: str) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")

    url = parse_url(f"{form}password_file={file}")

    assert url.password == SECRET
    assert SECRET not in f"{url} {url!r}"


def test_sentinels_have_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET)

    url = parse_url(f"redis+sentinel://:pw@db/main?sentinel_password_file={tmp_path}/password")

    assert (url.password, url.sentinel_password) == ("pw", SECRET)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "redis://db?password_file=/none",
            "its password_file, /none, cannot be read: No such file or directory",
        ),
        ("redis://db?password_file=/dev/null", "its password_file, /dev/null, is empty"),
        ("redis://:pw@db?password_file=/dev/null", "it has a password and a password_file"),
        (
            "redis+sentinel://db/main?sentinel_password=pw&sentinel_password_file=/dev/null",
            "it has a password and a sentinel_password_file",
        ),
    ],
)
def test_a_file_without_a_password_is_told(text: str, problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        parse_url(text)


def test_who_gives_up_root_takes_the_passwords_along(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss/w:rd")
    (tmp_path / "password").chmod(0o600)
    file = f"password_file={tmp_path}/password"

    text = reach_by_group(f"redis+sentinel://ann@db:1/main/2?{file}&sentinel_{file}", os.getgid())

    assert text is not None
    url = parse_url(text)
    assert (url.username, url.password, url.sentinel_password) == ("ann", "p@ss/w:rd", "p@ss/w:rd")
    assert (url.hosts, url.service, url.db) == ((("db", 1),), "main", 2)
    assert "password_file" not in text
