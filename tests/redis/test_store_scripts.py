"""The store's scripts, with the embedded server and with Debian's."""

from pathlib import Path

import pytest

from remuda.base.errors import Broken
from remuda.keyspace.fleet import BELL, LEASE
from remuda.store import Store, load_script
from remuda.store.wire import CommandRefused

STRING, OTHER = LEASE("test"), LEASE("other")
COUNT = """\
-- Counts with a name that nobody else uses.
-- KEYS[1] remuda:lease:{resource}
-- ARGV[1] by
-- returns the new count
return redis.call('INCRBY', KEYS[1], ARGV[1])
"""


async def test_a_script_may_ring_a_bell_that_its_own_connection_hears(any_store: Store) -> None:
    ring = "redis.call('PUBLISH', KEYS[1], 'x') return {1, 2}"
    with any_store.subscribe(BELL("test")) as rings:
        for _ in range(20):
            assert await any_store.send("EVAL", ring, 1, BELL("test")) == [1, 2]
            assert await rings.wait(5) == ["x"]


async def test_the_prefix_stands_before_the_keys_of_scripts(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    async with Store(redis_url, prefix="fleet-b:") as prefixed:
        await prefixed.run(script, keys=[STRING], args=[2])

    assert await store.send("KEYS", "*") == [f"fleet-b:{STRING}"]


async def test_a_script_is_run_before_and_after_redis_knows_it(any_store: Store, tmp_path: Path) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    await any_store.send("SCRIPT", "FLUSH")
    assert await any_store.run(script, keys=[STRING], args=[1]) == 1
    assert await any_store.send("SCRIPT", "EXISTS", script.sha) == [1]
    assert await any_store.run(script, keys=[STRING], args=[1]) == 2
    await any_store.send("SCRIPT", "FLUSH")
    assert await any_store.run(script, keys=[STRING], args=[1]) == 3


async def test_a_script_that_fails_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    await store.send("SCRIPT", "FLUSH")
    for _ in ("by its source", "by its digest"):
        with pytest.raises(CommandRefused, match=r"^count\.lua: .*not an integer"):
            await store.run(script, keys=[STRING], args=["many"])


async def test_a_script_is_not_called_with_other_keys_than_its_header_says(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "count.lua").write_text(COUNT)
    script = load_script(str(tmp_path / "count.py"), "count.lua", keys=[LEASE], args=["by"])

    with pytest.raises(Broken, match="takes 1 keys, got 2"):
        await store.run(script, keys=[STRING, OTHER], args=[1])
    assert await store.get(STRING) is None
