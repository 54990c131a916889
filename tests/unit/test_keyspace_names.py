"""The names that declarations give: each belongs to exactly one of them, and no bad value gets into one."""

import re
import string
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InvalidArgument
from remuda.keyspace import archive, fleet, grid, metering, metrics, playwright, storage
from remuda.keyspace.catalog import CATALOG, find
from remuda.keyspace.key import PARTS, Key

ALL = [key for keys in CATALOG.values() for key in keys]
# Where two patterns could meet, it is because a value spells a fixed segment of the other one.
FIXED_SEGMENTS = sorted({segment for key in ALL for segment in key.pattern.split(":") if "{" not in segment})

SESSION = "3f2b8c1e-90ab-4cde-8f01-23456789abcd"
IDENT = "43z7a11vo6of3a7i173441dtc"
TIME_SLOT = "1483280100000"


# Once for each rule, not for each example: a strategy takes longer to make than an example.
@cache
def values_of(pattern: str) -> st.SearchStrategy[str]:
    """Values that a placeholder's rule admits, fixed segments of other patterns among them."""
    rule = re.compile(pattern)
    lookalikes = [segment for segment in FIXED_SEGMENTS if rule.fullmatch(segment)]
    generated = st.from_regex(rule, fullmatch=True, alphabet=string.printable)
    return st.sampled_from(lookalikes) | generated if lookalikes else generated


def names_of(key: Key[Any]) -> st.SearchStrategy[str]:
    """Names that the declaration gives."""
    rules = {**PARTS, **key.parts}
    return st.builds(key, *(values_of(rules[placeholder]) for placeholder in key.placeholders))


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.pattern)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_name_matches_its_own_declaration_and_no_other(key: Key[Any], data: st.DataObject) -> None:
    name = data.draw(names_of(key))

    matches = [other.pattern for other in ALL if other.regex.fullmatch(name)]

    assert matches == [key.pattern]


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.pattern)
def test_every_declaration_gives_names_that_find_leads_back_to_it(key: Key[Any]) -> None:
    examples = {"session": SESSION, "ident": IDENT, "timestamp": TIME_SLOT, "level": "info", "method": "GET"}
    examples |= {"browser": "firefox", "resourcetype": "users", "metric": "numberOfObjects"}
    examples |= {"operation": "PutObject", "service": "s3", "pipeline": "d5a0875093c7581a"}
    examples |= {
        "version": "1.62",
        "digest": "0a" * 32,
        "shard": "3ff",
        "run": f"{IDENT}-1",
        "rank": "admins",
    }

    name = key(*(examples.get(placeholder, "abc-1") for placeholder in key.placeholders))

    assert isinstance(name, key.kind)
    assert find(name) is key


def test_patterns_are_unique() -> None:
    patterns = [key.pattern for key in ALL]

    assert len(patterns) == len(set(patterns))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sessions",
        "session:42:status",
        f"session:{SESSION}:status:more",
        f"session:{SESSION.upper()}:status",
        f"session:{SESSION}:status\n",
        "worker:opera:abc123",
        "worker:cmd:abc123",
        "metrics:http:requestsTotal:BREW",
        "s3:tapes:foo:storageUtilized",
        "s3:buckets:foo:PutObject",
        "s3:buckets:1451635200000:foo:storageUtilized",
        IDENT[:24],
        f"{IDENT}_warc",
        "remuda:unheard:of",
    ],
)
def test_a_stranger_matches_no_declaration(name: str) -> None:
    assert find(name) is None


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (grid.SESSION_STATUS, ["not-a-uuid"]),
        (grid.SESSION_STATUS, [f"{SESSION}:slot"]),
        (grid.SESSION_STATUS, [f"{SESSION}\n"]),
        (grid.ORCHESTRATOR, ["a:heartbeat"]),
        (grid.ORCHESTRATOR, ["*"]),
        (grid.MANAGER, [""]),
        (metrics.METRICS_HTTP_REQUESTS, ["get"]),
        (metrics.METRICS_HTTP_REQUESTS, ["BREW"]),
        (metrics.METRICS_SESSIONS_LOG, ["INFO"]),
        (storage.STORAGE_METADATA_PENDING, ["../etc"]),
        (playwright.WORKER, ["cmd", "abc123"]),
        (playwright.WORKER, ["chromium", "abc:123"]),
        (metering.METER_STATE, ["s3", "buckets", "foo:bar", "storageUtilized"]),
        (metering.METER_STATE, ["s3", "buckets", "foo", "PutObject"]),
        (metering.METER_USAGE, ["s3", "buckets", "1451635200", "foo", "PutObject"]),
        (metering.METER_USAGE, ["s3", "buckets", "١٤٥١٦٣٥٢٠٠٠٠٠", "foo", "PutObject"]),
        (metering.METER_USAGE, ["s3", "buckets", TIME_SLOT, "foo", "counter"]),
        (archive.JOB, [IDENT[:24]]),
        (archive.JOB, [IDENT.upper()]),
        (archive.PIPELINE, ["not-hex"]),
        (fleet.BELL, ["a topic"]),
        (fleet.LEASE, ["x" * 201]),
    ],
)
def test_a_value_outside_its_rule_is_refused(key: Key[Any], values: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        key(*values)


def test_a_service_cannot_take_the_first_word_of_another_room() -> None:
    taken = {
        key.pattern.partition(":")[0]
        for room, keys in CATALOG.items()
        if room != "metering"
        for key in keys
        if ":" in key.pattern
    }

    assert set(metering.RESERVED) == taken
    for word in taken:
        with pytest.raises(InvalidArgument):
            metering.REPLAY(word)


def test_a_service_may_begin_with_a_reserved_word() -> None:
    assert metering.REPLAY("storage-east") == "storage-east:utapireplay"


@pytest.mark.parametrize(
    ("key", "values", "name"),
    [
        (
            metering.METER_STATE,
            "s3 buckets foo-bucket storageUtilized",
            "s3:buckets:foo-bucket:storageUtilized",
        ),
        (
            metering.METER_USAGE,
            "s3 buckets 1451635200000 foo-bucket PutObject",
            "s3:buckets:1451635200000:foo-bucket:PutObject",
        ),
        (metering.REPLAY, "s3", "s3:utapireplay"),
        (playwright.WORKER, "chromium abc123", "worker:chromium:abc123"),
        (playwright.WORKER_COMMAND, "chromium abc123", "worker:cmd:chromium:abc123"),
    ],
)
def test_the_examples_of_the_documents_come_out_to_the_letter(key: Key[Any], values: str, name: str) -> None:
    assert key(*values.split()) == name


def test_the_keys_of_a_session_are_all_listed_for_its_purge() -> None:
    declared = [key for key in CATALOG["grid"] if "session" in key.placeholders]

    assert list(grid.SESSION_KEYS) == declared


def test_the_keys_of_an_orchestrator_are_all_listed_for_its_purge() -> None:
    declared = [key for key in CATALOG["grid"] if "orchestrator" in key.placeholders]

    assert list(grid.ORCHESTRATOR_KEYS) == declared


@pytest.mark.parametrize("room", CATALOG)
def test_a_placeholder_has_one_rule_in_its_room(room: str) -> None:
    rules = {
        (placeholder, {**PARTS, **key.parts}[placeholder])
        for key in CATALOG[room]
        for placeholder in key.placeholders
    }

    assert len(rules) == len({placeholder for placeholder, _ in rules})
