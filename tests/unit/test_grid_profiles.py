"""A client's Firefox profile and its extensions: what is kept of them, and what is not."""

import base64
import io
import json
import time
import warnings
import zipfile
from collections.abc import Mapping

import pytest

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.grid.node import profile
from remuda.grid.node.extensions import check_extension
from remuda.grid.node.profile import take_apart


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def extension(**manifest: object) -> bytes:
    return zipped({"manifest.json": json.dumps({"name": "x", "version": "1", **manifest})})


def kept_of(files: Mapping[str, str | bytes], allow: str = "") -> tuple[dict[str, bytes], list[str]]:
    """What is left of a profile with these files, and what is not."""
    packed, dropped = take_apart(text(zipped(files)), Allowance.of(allow))
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}, dropped


def test_preferences_and_extensions_are_all_that_is_kept() -> None:
    addon = extension(permissions=["tabs"])
    kept, dropped = kept_of(
        {
            "user.js": 'user_pref("intl.accept_languages", "de");',
            "extensions/addon@example.xpi": addon,
            "handlers.json": "{}",
            "pkcs11.txt": "library=/tmp/x.so",
            "chrome/userChrome.js": "x",
            "cert9.db": "x",
            "../../../etc/cron.d/x": "x",
            "/etc/cron.d/y": "x",
            "extensions/../handlers.json": "x",
            "extensions/..\\x.xpi/y": "x",
            "user.js/": "",
        }
    )

    assert kept.keys() == {"user.js", "extensions/addon@example.xpi"}
    assert kept["extensions/addon@example.xpi"] == addon
    assert len(dropped) == 8
    assert "handlers.json in profile" in dropped


def test_preferences_are_sifted_as_those_of_the_capability_are() -> None:
    kept, dropped = kept_of(
        {
            "prefs.js": 'user_pref("intl.accept_languages", "fr");\nuser_pref("dom.push.enabled", true);',
            "user.js": """
                // A comment
                user_pref("intl.accept_languages", "de");
                user_pref("browser.helperApps.neverAsk.openFile", "application/sh");
                user_pref("network.proxy.socks", "file:///run/x.sock"); user_pref("dom.push.enabled", 1);
                user_pref("general.config.filename", "x.cfg");
                  pref ( "dom.push.enabled" , false ) ;
            """,
        }
    )

    assert kept["user.js"].decode().splitlines() == [
        'user_pref("intl.accept_languages", "de");',
        'user_pref("dom.push.enabled", false);',
    ]
    assert dropped == [
        f"{name} in profile"
        for name in ("browser.helperApps.neverAsk.openFile", "network.proxy.socks", "general.config.filename")
    ]


def test_what_the_operator_allows_is_kept() -> None:
    kept, _ = kept_of(
        {"user.js": 'user_pref("print.always_print_silent", true);'}, "print.always_print_silent"
    )

    assert b"print.always_print_silent" in kept["user.js"]


def test_a_value_cannot_break_out_of_its_line() -> None:
    kept, _ = kept_of({"user.js": r'user_pref("general.useragent.override", "\"); user_pref(\"a\", \"b");'})

    assert kept["user.js"].decode() == (
        r'user_pref("general.useragent.override", "\"); user_pref(\"a\", \"b");' + "\n"
    )


@pytest.mark.parametrize("given", ["", "nonsense", "AAAA", text(b"PK\x03\x04 and no more"), "\x00"])
def test_what_is_not_a_zip_archive_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument, match="not a zip archive"):
        take_apart(given, NOTHING_MORE)


def test_a_file_that_unpacks_to_more_than_there_is_room_for_is_refused() -> None:
    bomb = zipped({"user.js": b" " * (profile.MAX_PREFERENCES + 1)})

    with pytest.raises(InvalidArgument, match="too large"):
        take_apart(text(bomb), NOTHING_MORE)


def test_extensions_share_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MAX_EXTENSIONS", 1000)
    addon = zipped({"manifest.json": "{}", "x": bytes(range(256)) * 2})

    with pytest.raises(InvalidArgument, match="too large"):
        take_apart(text(zipped({f"extensions/{n}.xpi": addon for n in range(3)})), NOTHING_MORE)


def test_an_archive_with_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MAX_ENTRIES", 2)

    with pytest.raises(InvalidArgument, match="it may have 2"):
        take_apart(text(zipped({"a": "", "b": "", "c": ""})), NOTHING_MORE)


# Extensions


def test_an_extension_that_stays_inside_the_browser_passes() -> None:
    check_extension(text(extension(permissions=["tabs", "storage"])), NOTHING_MORE, where="'extensions'")
    check_extension(
        b"Cr24\x03\x00\x00\x00\x04\x00\x00\x00head" + extension(), NOTHING_MORE, where="'extensions'"
    )


@pytest.mark.parametrize(
    "manifest",
    [
        '{"permissions": ["nativeMessaging"]}',
        '{"optional_permissions": ["nativeMessaging"]}',
        '// A comment\n{"permissions": ["native\\u004dessaging"]}',
        '{"permissions": ["\\x6eativeMessaging"]}',
        '{"permissions": ["nativeMessaging"]'.encode("utf-16").decode("latin-1"),
        "x" * (1 << 20) + '{"permissions": ["nativeMessaging"]}',
    ],
)
def test_an_extension_that_calls_programs_is_refused(manifest: str) -> None:
    packed = text(zipped({"manifest.json": manifest.encode("latin-1")}))

    with pytest.raises(InvalidArgument, match="nativeMessaging"):
        check_extension(packed, NOTHING_MORE, where="'extensions'")
    check_extension(packed, Allowance.of("nativeMessaging"), where="'extensions'")


def test_an_extension_in_a_profile_is_looked_at_too() -> None:
    addon = extension(permissions=["nativeMessaging"])

    with pytest.raises(InvalidArgument, match="nativeMessaging"):
        kept_of({"extensions/x.xpi": addon})


def test_what_is_not_an_extension_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not an archive"):
        check_extension("nonsense", NOTHING_MORE, where="'extensions'")


def test_a_file_of_line_breaks_is_read_in_no_time() -> None:
    began = time.process_time()

    kept, _ = kept_of({"prefs.js": "\n" * 100_000 + 'user_pref("dom.push.enabled", false);'})

    # Minutes, if the time grew with the square of their number.
    assert time.process_time() - began < 20
    assert b"dom.push.enabled" in kept["user.js"]


def test_an_extension_with_many_manifests_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of names that come twice.
        for _ in range(5):
            archive.writestr("manifest.json", "{}")

    with pytest.raises(InvalidArgument, match="it has 5 manifests"):
        check_extension(packed.getvalue(), NOTHING_MORE, where="the request")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_only_zipfile_can_unpack_is_refused(compression: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr("manifest.json", "{}")
    bomb = packed.getvalue()

    with pytest.raises(InvalidArgument, match="is not compressed by deflate"):
        check_extension(bomb, NOTHING_MORE, where="the request")
    with pytest.raises(InvalidArgument, match="is not compressed by deflate"):
        take_apart(text(bomb), NOTHING_MORE)


def test_an_archive_with_too_many_entries_is_not_even_read() -> None:
    # As a bomb is made: entries without content, and a directory that claims to have none of them.
    entry = zipped({"a": ""})
    start, end = entry.index(b"PK\x01\x02"), entry.index(b"PK\x05\x06")
    directory = entry[start:end] * 20_001
    size = len(directory).to_bytes(4, "little")
    bomb = entry[:start] + directory + entry[end : end + 12] + size + entry[end + 16 :]

    with pytest.raises(InvalidArgument, match="it has more than 20000 files"):
        take_apart(text(bomb), NOTHING_MORE)
    with pytest.raises(InvalidArgument, match="it has more than 20000 files"):
        check_extension(bomb, NOTHING_MORE, where="the request")
