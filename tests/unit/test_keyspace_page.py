"""The catalog as it is shown: the reference page and the lines of `remuda keys`."""

import pytest

from remuda.base.errors import InvalidArgument
from remuda.keyspace.catalog import CATALOG
from remuda.keyspace.log_codes import LOG_CODES
from remuda.keyspace.page import find_keys, render_lines, render_page


def test_the_page_shows_every_key_field_and_log_code() -> None:
    page = render_page()

    for keys in CATALOG.values():
        for key in keys:
            assert f"| `{key.pattern}` | {key.kind.redis_type} |" in page
            assert all(holds in page for holds in key.fields.values())
    assert all(f"| `{entry.code}` | {entry.meaning} |" in page for entry in LOG_CODES)


def test_a_bar_in_a_rule_does_not_break_its_table() -> None:
    rows = [line for line in render_page().splitlines() if line.startswith("| `{method}`")]

    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 3


def test_lines_are_grouped_by_room() -> None:
    headings = [line for line in render_lines(find_keys()) if line and not line.startswith(" ")]

    assert headings == list(CATALOG)


def test_lines_can_be_narrowed_to_one_room() -> None:
    lines = render_lines(find_keys("storage"))

    assert lines[0] == "storage"
    assert "storage:{storage}:metadata.pending" in lines[1]
    assert len(lines) == 1 + 2 * len(CATALOG["storage"])


def test_a_live_name_shows_its_declaration_with_fields() -> None:
    lines = render_lines(find_keys(None, "worker:cmd:chromium:abc123"), with_fields=True)

    assert [line.split()[0] for line in lines if line.startswith("  worker")] == [
        "worker:cmd:{browser}:{worker}"
    ]
    assert lines[-1].split() == ["value", "`shutdown`:", "drain,", "then", "exit"]


def test_a_pattern_that_fits_nothing_shows_nothing() -> None:
    assert render_lines(find_keys(None, "no such key")) == []


def test_an_unknown_room_is_refused_with_the_rooms_there_are() -> None:
    with pytest.raises(InvalidArgument, match="grid, metrics"):
        find_keys("attic")
