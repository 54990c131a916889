"""Lua scripts: the header is checked against the caller, the body against the header, a call against both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.base.errors import Broken
from remuda.keyspace.fleet import LEASE, ROLES
from remuda.keyspace.key import Key
from remuda.store import Script, load_script

TAKE = """\
-- Takes a lease.
-- KEYS[1] remuda:lease:{resource}
-- ARGV[1] owner, who wants it
-- ARGV[2] seconds
-- returns 1
return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
"""
OPEN = """\
-- Counts.
-- KEYS[1..] remuda:lease:{resource}
-- ARGV[1] first
-- ARGV[2..] rest
return #KEYS + #ARGV
"""


def load(directory: Path, source: str, *, keys: Sequence[Key[Any]] = (LEASE,), args: Sequence[str]) -> Script:
    (directory / "take.lua").write_text(source)
    return load_script(str(directory / "caller.py"), "take.lua", keys=keys, args=args)


def test_a_script_that_fits_its_header_is_loaded(tmp_path: Path) -> None:
    script = load(tmp_path, TAKE, args=["owner", "seconds"])

    assert script.keys == ("remuda:lease:{resource}",)
    assert script.source == TAKE


@pytest.mark.parametrize(
    ("keys", "args"),
    [
        ([ROLES], ["owner", "seconds"]),
        ([LEASE, ROLES], ["owner", "seconds"]),
        ([], ["owner", "seconds"]),
        ([LEASE], ["seconds", "owner"]),
        ([LEASE], ["owner"]),
    ],
)
def test_a_header_that_says_otherwise_than_its_caller_is_refused(
    tmp_path: Path, keys: list[Key[Any]], args: list[str]
) -> None:
    with pytest.raises(Broken, match=r"take\.lua declares"):
        load(tmp_path, TAKE, keys=keys, args=args)


@pytest.mark.parametrize("undeclared", ["KEYS[2]", "ARGV[3]"])
def test_a_body_that_uses_what_its_header_does_not_declare_is_refused(
    tmp_path: Path, undeclared: str
) -> None:
    source = TAKE.replace("KEYS[1], ", f"{undeclared}, ")

    with pytest.raises(Broken, match="which its header does not declare"):
        load(tmp_path, source, args=["owner", "seconds"])


def test_a_header_out_of_order_is_refused(tmp_path: Path) -> None:
    source = TAKE.replace("-- ARGV[2]", "-- ARGV[3]")

    with pytest.raises(Broken, match="out of order"):
        load(tmp_path, source, args=["owner", "seconds"])


def test_nothing_can_follow_an_open_end(tmp_path: Path) -> None:
    source = OPEN.replace("-- ARGV[1] first", "-- ARGV[1..] first")

    with pytest.raises(Broken, match="out of order"):
        load(tmp_path, source, args=["first", "rest"])


def test_a_comment_in_the_body_is_no_header(tmp_path: Path) -> None:
    source = TAKE + "-- KEYS[2] remuda:roles\n"

    assert load(tmp_path, source, args=["owner", "seconds"]).keys == ("remuda:lease:{resource}",)


@pytest.mark.parametrize(("keys", "args"), [(0, 2), (2, 2), (1, 1), (1, 3)])
def test_a_call_that_does_not_fit_the_header_is_refused(tmp_path: Path, keys: int, args: int) -> None:
    script = load(tmp_path, TAKE, args=["owner", "seconds"])

    with pytest.raises(Broken, match=r"take\.lua takes"):
        script.check_call(["k"] * keys, ["a"] * args)


@pytest.mark.parametrize(("keys", "args"), [(0, 1), (1, 2), (5, 9)])
def test_an_open_end_takes_any_number(tmp_path: Path, keys: int, args: int) -> None:
    script = load(tmp_path, OPEN, args=["first", "rest"])

    script.check_call(["k"] * keys, ["a"] * args)


def test_an_open_end_still_asks_for_what_comes_before_it(tmp_path: Path) -> None:
    script = load(tmp_path, OPEN, args=["first", "rest"])

    with pytest.raises(Broken):
        script.check_call([], [])


def test_a_body_may_use_what_an_open_end_stands_for(tmp_path: Path) -> None:
    source = OPEN.replace("#KEYS", "KEYS[3]")

    assert load(tmp_path, source, args=["first", "rest"]).open_keys


SHARED = """\
-- What several scripts do.
-- KEYS[1] remuda:lease:{resource}
-- ARGV[2] seconds

local function take(owner)
  return redis.call('SET', KEYS[1], owner, 'EX', ARGV[2])
end
"""
SHARING = """\
-- Takes a lease.
-- ARGV[1] owner
-- returns 1

return take(ARGV[1])
"""


def test_shared_functions_come_first_and_their_header_counts(tmp_path: Path) -> None:
    (tmp_path / "shared.lua").write_text(SHARED)
    (tmp_path / "take.lua").write_text(SHARING)

    script = load_script(
        str(tmp_path / "caller.py"), "take.lua", keys=[LEASE], args=["owner", "seconds"], shared="shared.lua"
    )

    assert script.source.index("local function take") < script.source.index("return take")
    assert script.args == ("owner", "seconds")


def test_shared_functions_cannot_take_what_no_header_declares(tmp_path: Path) -> None:
    (tmp_path / "shared.lua").write_text(SHARED.replace("-- ARGV[2] seconds\n", ""))
    (tmp_path / "take.lua").write_text(SHARING)

    with pytest.raises(Broken, match=r"uses ARGV\[2\]"):
        load_script(
            str(tmp_path / "caller.py"), "take.lua", keys=[LEASE], args=["owner"], shared="shared.lua"
        )
