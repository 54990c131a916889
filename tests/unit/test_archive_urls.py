"""URLs in normal form, and the idents and slugs that follow from them."""

import pytest

from remuda.archive.urls import (
    Base,
    credentials_by_server,
    host_of,
    ident_of,
    normalise,
    slug_of,
    without_credentials,
    without_session,
)
from remuda.base.errors import InvalidArgument


@pytest.mark.parametrize(
    ("url", "ident"),
    [
        ("http://artscene.textfiles.com/litpacks/", "43z7a11vo6of3a7i173441dtc"),
        ("http://store.steampowered.com/livingroom", "1q2qydhkeh3gfnrcxuf6py70b"),
        ("https://www.example.com/some-file.txt", "byu50bzfdbnlyl6mrgn6dd24h"),
        ("http://www.marc-hoersken.de/", "9h5936cozfr0sxmsw1jox9iwf"),
        ("http://www.example.com/", "eed6rdmqqi18ps2eqfatkjyld"),
        ("http://www.example.com", "eed6rdmqqi18ps2eqfatkjyld"),
        ("https://www.example.com/", "ei7apzp1nuj4crgy2kv13lben"),
        ("ftp://ftp.example.com/pub/", "0t96vs2vxkvxyg5tj483a47i9"),
    ],
)
def test_idents_are_those_of_archivebot_padded(url: str, ident: str) -> None:
    assert ident_of(url) == ident


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:443/a#b", "https://example.com/a"),
        ("http://example.com:8080?x", "http://example.com:8080/?x"),
        ("http://example.com/a/./b/../c/..", "http://example.com/a/"),
        ("http://example.com/../../x", "http://example.com/x"),
        ("http://example.com/%7euser/%c3%a4%2f", "http://example.com/~user/%C3%A4%2F"),
        ("http://example.com/a b?c d", "http://example.com/a%20b?c%20d"),
        ("http://b\u00fccher.example/\u00fc", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://fa\u00df.example/", "http://xn--fa-hia.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0::1]:80/", "http://[2001:db8::1]/"),
        ("http://me:secret@example.com/", "http://example.com/"),
        ("http:\\\\me:se@cret@example.com\\a@b", "http://example.com/a@b"),
        (" \thttp://exam\nple.com/ ", "http://example.com/"),
        ("http:\\\\example.com\\a", "http://example.com/a"),
    ],
)
def test_urls_have_one_spelling(text: str, url: str) -> None:
    assert normalise(text) == url
    assert normalise(url) == url


@pytest.mark.parametrize(
    "text",
    [
        *("", "example.com", "/path", "file:///etc/passwd", "javascript:alert(1)", "http://", "http://a b/"),
        "http://example.com:99999/",
        "http://[::1/",
        "http://a..b/",
        "gopher://example.com/",
        "http://ex%00ample/",
    ],
)
def test_what_is_no_web_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        normalise(text)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("c", "http://example.com/a/c"),
        ("../c?d", "http://example.com/c?d"),
        ("/c", "http://example.com/c"),
        ("//other.example", "http://other.example/"),
        ("?x=1", "http://example.com/a/b?x=1"),
        ("#part", None),
        ("", None),
        ("mailto:a@example.com", None),
        ("data:text/plain,x", None),
        ("ftp://example.com/", None),
        ("https:c", "https://c/"),
        ("http:c", "http://example.com/a/c"),
        ("\\\\other.example\\c", "http://other.example/c"),
        ("c:d", None),
        ("./c:d", "http://example.com/a/c:d"),
        ("http://eve:secret@other.example/c", "http://other.example/c"),
        ("//eve@example.com/c@d", "http://example.com/c@d"),
    ],
)
def test_references_are_resolved_as_browsers_do(reference: str, url: str | None) -> None:
    assert Base("http://example.com/a/b?q").resolve(reference) == url


@pytest.mark.parametrize(
    "text",
    [
        *("me:secret@example.com", "http:me:secret@example.com/", "//me:secret@example.com/", "me:secret@"),
        *(
            "http://me:secret@a b/",
            "http://me:sec#secret@example.com/",
            "http://me:sec/secret@[::1",
            "@secret@",
        ),
        *("gopher://me:secret@example.com/", "http://me:s@secret@", " \thttp:/\n/me:secret@a b"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        normalise(text)

    assert "secret" not in str(caught.value)
    assert "secret" not in without_credentials(text)


def test_credentials_are_those_of_a_scheme_host_and_port_and_the_first_count() -> None:
    urls = [
        "HTTP://me:s%e9@Example.com:80/a",
        "http://you:other@example.com/b",
        "https://me@example.com",
        "\thttp:\\\\:p@ss word@[::1]:8080/?x@y",
        *(
            "http://plain.example/@",
            "http://:@empty.example/",
            "http://@empty.example/",
            "http://me:p@a b/",
            "ftp://me:p@a/",
        ),
    ]

    assert credentials_by_server(urls) == {
        "http://example.com": "me:s%e9",
        "https://example.com": "me",
        "http://[::1]:8080": ":p%40ss%20word",
        "ftp://a": "me:p",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://Example.com:80/@?a@b#c@d", "http://Example.com:80/@?a@b#c@d"),
        ("http://me:p@ss@Example.com:80/@?a@b#c@d", "http://Example.com:80/@?a@b#c@d"),
        ("see http://me:pass@example.com/", "***@example.com/"),
        ("no URL", "no URL"),
    ],
)
def test_a_line_is_shown_as_it_was_typed_but_for_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_only_the_query_depends_on_the_charset() -> None:
    assert (
        Base("http://x.example/", "windows-1252").resolve("/\u00fc?\u00fc") == "http://x.example/%C3%BC?%FC"
    )


def test_slugs_name_files() -> None:
    assert slug_of("https://www.example.com/a/", "inf") == "www.example.com-inf"
    assert (
        slug_of("http://x.example/lists/all.txt?v=2", "shallow", is_url_file=True)
        == "urls-x.example-all.txt-shallow"
    )
    assert slug_of("http://[::1]/", "inf") == "__1-inf"
    assert "/" not in slug_of("http://x.example/..%2f", "inf", is_url_file=True)


def test_ids_of_sessions_are_left_out() -> None:
    session = "0123456789abcdef0123456789abcdef"
    assert without_session(f"http://x.example/a?PHPSESSID={session}&b=1") == "http://x.example/a?b=1"
    assert without_session(f"http://x.example/a?sid={session}") == "http://x.example/a"
    assert without_session(f"http://x.example/a;jsessionid={session}?b=1") == "http://x.example/a?b=1"
    assert without_session("http://x.example/?inside=1") == "http://x.example/?inside=1"


def test_the_host_of_an_address() -> None:
    assert host_of("http://example.com:8080/") == "example.com"
    assert host_of("http://[::1]:80/") == "::1"
