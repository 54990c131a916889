"""A process's life: start, serve, drain and stop in order, and the record of it in Redis."""

import asyncio
import os
import subprocess
from contextlib import suppress

import pytest

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import Broken, Misconfigured, StoreUnavailable
from remuda.base.ids import RoleId
from remuda.base.processes import process_name
from remuda.fleet import role as role_module
from remuda.fleet.lifeline import Lifeline, Tether
from remuda.fleet.role import Life, Role, are_compatible, running_roles
from remuda.keyspace.fleet import ROLE, ROLES
from remuda.store import Store
from remuda.store.census import take_census
from servers import PATIENCE, Server
from waiting import eventually


class Recorder(Role):
    """A role that writes down what it goes through."""

    def __init__(self, name: str, steps: list[str]) -> None:
        super().__init__()
        self.name = name
        self.address = "127.0.0.1:1"
        self.steps = steps

    async def start(self) -> None:
        self.steps.append(f"start {self.name}")

    async def serve(self) -> None:
        self.steps.append(f"serve {self.name}")
        await asyncio.Event().wait()

    async def drain(self) -> None:
        self.steps.append(f"drain {self.name}")

    async def stop(self) -> None:
        self.steps.append(f"stop {self.name}")


async def serving(life: Life, steps: list[str], count: int = 1) -> asyncio.Task[None]:
    """The life, once so many of its roles serve."""
    task = asyncio.create_task(life.run())
    await eventually(lambda: task.done() or sum(step.startswith("serve") for step in steps) == count)
    return task


async def test_roles_start_in_order_and_leave_in_the_opposite_one(store: Store) -> None:
    steps: list[str] = []
    life = Life(store, [Recorder("a", steps), Recorder("b", steps)])
    living = await serving(life, steps, 2)

    life.ask_stop()
    await living

    assert steps == ["start a", "start b", "serve a", "serve b", "drain b", "drain a", "stop b", "stop a"]


async def test_a_role_that_wants_to_leave_ends_the_life_in_good_order(store: Store) -> None:
    steps: list[str] = []
    first, second = Recorder("a", steps), Recorder("b", steps)
    living = await serving(Life(store, [first, second]), steps, 2)

    first.wants_to_leave.set()
    await living

    assert steps[4:] == ["drain b", "drain a", "stop b", "stop a"]


class Slow(Recorder):
    """A role that never gets done."""

    async def drain(self) -> None:
        await super().drain()
        await asyncio.Event().wait()


async def test_a_signal_does_not_hurry_a_role_that_leaves_by_itself(store: Store) -> None:
    steps: list[str] = []
    role = Slow("a", steps)
    life = Life(store, [role])
    living = await serving(life, steps)
    role.wants_to_leave.set()
    await eventually(lambda: "drain a" in steps)

    life.ask_stop()
    assert not life.hurry.is_set()
    life.ask_stop()

    await living
    assert steps[-1] == "stop a"


async def test_a_life_can_be_ended_at_once(store: Store) -> None:
    steps: list[str] = []
    life = Life(store, [Slow("a", steps)])
    living = await serving(life, steps)

    life.ask_stop_at_once()

    await living
    assert steps[-1] == "stop a"


async def test_a_start_that_fails_stops_what_had_started(store: Store) -> None:
    class Failing(Recorder):
        async def start(self) -> None:
            await super().start()
            raise Misconfigured("port 4444 is in use")

    steps: list[str] = []
    life = Life(store, [Recorder("a", steps), Failing("b", steps), Recorder("c", steps)])

    with pytest.raises(Misconfigured, match="4444"):
        await life.run()

    assert steps == ["start a", "start b", "stop b", "stop a"]
    assert await store.send("DBSIZE") == 0


@pytest.mark.parametrize("failure", [None, ZeroDivisionError("boom")])
async def test_a_role_that_ends_by_itself_ends_the_life(store: Store, failure: Exception | None) -> None:
    class Ending(Recorder):
        async def serve(self) -> None:
            if failure is not None:
                raise failure

    steps: list[str] = []
    life = Life(store, [Recorder("a", steps), Ending("b", steps)])

    with pytest.raises(Broken if failure is None else ZeroDivisionError, match=r"ended by itself|boom"):
        await life.run()

    assert steps[-2:] == ["stop b", "stop a"]
    assert await store.send("DBSIZE") == 0


async def test_a_second_request_cuts_the_drain_short(store: Store) -> None:
    class Slow(Recorder):
        async def drain(self) -> None:
            await super().drain()
            await asyncio.Event().wait()

    steps: list[str] = []
    life = Life(store, [Slow("a", steps)], drain_timeout=60)
    living = await serving(life, steps)

    life.ask_stop()
    await eventually(lambda: "drain a" in steps)
    life.ask_stop()
    async with asyncio.timeout(5):
        await living

    assert steps[-1] == "stop a"


async def test_a_drain_ends_in_time(store: Store) -> None:
    class Slow(Recorder):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    steps: list[str] = []
    life = Life(store, [Slow("a", steps)], drain_timeout=0.05)
    living = await serving(life, steps)

    life.ask_stop()
    async with asyncio.timeout(5):
        await living

    assert steps[-1] == "stop a"


@pytest.mark.parametrize("failure", [Broken("no"), ZeroDivisionError("boom")])
async def test_a_role_that_cannot_leave_properly_does_not_keep_the_others_from_it(
    store: Store, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    class Stubborn(Recorder):
        async def drain(self) -> None:
            raise failure

        async def stop(self) -> None:
            raise failure

    steps: list[str] = []
    life = Life(store, [Recorder("a", steps), Stubborn("b", steps)])
    living = await serving(life, steps, 2)

    life.ask_stop()
    await living

    assert steps[-2:] == ["drain a", "stop a"]
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert messages == ["drain failed", "stop failed"]


async def test_a_life_that_is_cancelled_still_stops_its_roles(store: Store) -> None:
    steps: list[str] = []
    living = await serving(Life(store, [Recorder("a", steps)]), steps)

    living.cancel()
    await asyncio.wait([living])

    assert living.cancelled()
    assert steps[-1] == "stop a"
    assert await store.send("DBSIZE") == 0


async def test_a_request_to_stop_does_not_wait_for_a_start_that_hangs(store: Store) -> None:
    class Hanging(Recorder):
        async def start(self) -> None:
            await super().start()
            await asyncio.Event().wait()

    steps: list[str] = []
    life = Life(store, [Recorder("a", steps), Hanging("b", steps)])
    living = asyncio.create_task(life.run())
    await eventually(lambda: "start b" in steps)

    life.ask_stop()
    async with asyncio.timeout(5):
        await living

    assert steps == ["start a", "start b", "stop b", "stop a"]


# The record


async def test_a_running_role_is_on_record_until_it_stops(any_store: Store) -> None:
    steps: list[str] = []
    role = Recorder("gateway", steps)
    role.warning = "its machine is open"
    life = Life(any_store, [role])
    living = await serving(life, steps)

    (record,) = await running_roles(any_store)
    assert record["warning"] == "its machine is open"
    assert (record["id"], record["name"], record["address"]) == (role.id, "gateway", "127.0.0.1:1")
    assert record["version"] == __version__
    assert abs(clock.parse_rfc3339(record["beatAt"]) - clock.now()) < 5
    assert 0 < await any_store.ttl_ms(ROLE(role.id)) <= 15_000
    assert await take_census(any_store) == []

    life.ask_stop()
    await living
    assert await any_store.send("DBSIZE") == 0


async def test_the_record_is_kept_fresh(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_module, "BEAT_EVERY", 0.02)
    steps: list[str] = []
    role = Recorder("gateway", steps)
    life = Life(store, [role])
    living = await serving(life, steps)
    (before,) = await running_roles(store)
    await store.expire(ROLE(role.id), 2)

    await eventually(lambda: _is_fresher(store, before))

    (after,) = await running_roles(store)
    assert after["startedAt"] == before["startedAt"]
    assert await store.ttl_ms(ROLE(role.id)) > 10_000
    life.ask_stop()
    await living


async def _is_fresher(store: Store, before: dict[str, str]) -> bool:
    return [record["beatAt"] > before["beatAt"] for record in await running_roles(store)] == [True]


async def test_the_record_comes_back_after_redis_lost_everything(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_module, "BEAT_EVERY", 0.02)
    async with Store(server.url) as store:
        steps: list[str] = []
        life = Life(store, [Recorder("gateway", steps)])
        living = await serving(life, steps)

        server.kill()
        await eventually(lambda: not store.is_connected)
        server.start()

        await eventually(lambda: running_roles(store))
        life.ask_stop()
        await living


async def test_a_role_is_listed_while_its_record_lives(store: Store) -> None:
    steps: list[str] = []
    role = Recorder("gateway", steps)
    life = Life(store, [role])
    living = await serving(life, steps)

    # As in a Redis without memory, which prolongs what is there but takes no new score.
    await store.zadd(ROLES(), {role.id: clock.now() - 60})

    assert [record["name"] for record in await running_roles(store)] == ["gateway"]
    life.ask_stop()
    await living


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_machines_with_different_clocks_do_not_forget_each_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    steps: list[str] = []
    first, second = (Life(store, [Recorder(name, steps)]) for name in ("here", "elsewhere"))
    living = [await serving(first, steps)]

    with monkeypatch.context() as elsewhere:
        now = clock.now()
        elsewhere.setattr(clock, "now", lambda: now + ahead)
        living.append(await serving(second, steps, 2))
    seen = [{record["name"] for record in await running_roles(store)}]
    await first._heart.start(*map(first._beat, first._roles))
    seen.append({record["name"] for record in await running_roles(store)})

    assert seen == [{"here", "elsewhere"}] * 2
    for life in (first, second):
        life.ask_stop()
    await asyncio.gather(*living)


async def test_the_dead_are_not_listed_and_the_living_forget_them(store: Store) -> None:
    await store.zadd(ROLES(), {"long-dead": clock.now() - 60, "just-dead": clock.now()})
    steps: list[str] = []
    life = Life(store, [Recorder("gateway", steps)])
    living = await serving(life, steps)

    assert [record["name"] for record in await running_roles(store)] == ["gateway"]
    assert "long-dead" not in await store.zrange(ROLES())
    life.ask_stop()
    await living


async def test_a_life_ends_although_redis_is_away(server: Server) -> None:
    async with Store(server.url, timeout=PATIENCE) as store:
        steps: list[str] = []
        life = Life(store, [Recorder("a", steps)])
        living = await serving(life, steps)
        server.kill()

        life.ask_stop()
        async with asyncio.timeout(5):
            await living

        assert steps[-1] == "stop a"


# The lifeline


async def test_a_life_that_ends_waits_for_an_absent_redis_once_and_not_with_each_command(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_module, "STOP_PATIENCE", 0.05)

    class Dutiful(Recorder):
        async def stop(self) -> None:
            for number in range(3):
                with suppress(StoreUnavailable):
                    await store.delete(ROLE(RoleId(str(number))))
            await super().stop()

    steps: list[str] = []
    async with Store(server.url, timeout=60) as store:
        life = Life(store, [Dutiful("a", steps)])
        living = await serving(life, steps)
        server.kill()
        await eventually(lambda: not store.is_connected)

        life.ask_stop()
        async with asyncio.timeout(20):
            await living

    assert steps[-1] == "stop a"


async def test_a_life_says_on_its_lifeline_that_it_is_ready(store: Store) -> None:
    tether = Tether()
    steps: list[str] = []
    life = Life(store, [Recorder("a", steps)])
    living = asyncio.create_task(life.run(Lifeline(tether.descriptor)))

    async with asyncio.timeout(5):
        assert await tether.wait_ready()

    assert "start a" in steps
    life.ask_stop()
    async with asyncio.timeout(5):
        assert await tether.wait_leaving()
    await living


async def test_a_child_that_ends_before_it_is_ready_is_noticed() -> None:
    tether = Tether()

    tether.handed_over()

    async with asyncio.timeout(5):
        assert not await tether.wait_ready()


async def test_without_a_lifeline_nobody_holds_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_LIFELINE", raising=False)

    assert Lifeline.from_environ() is None


async def test_records_of_this_machines_dead_processes_are_dropped_at_a_start(store: Store) -> None:
    ended = subprocess.Popen(["true"])
    name = process_name(ended.pid)
    ended.wait()
    elsewhere = name.replace("/", "0/", 1)
    known = {"dead": name, "alive": process_name(os.getpid()), "elsewhere": elsewhere, "old": ""}
    for role, process in known.items():
        await store.hset(
            ROLE(role), {"name": "api", "startedAt": "2026", "version": __version__, "process": process}
        )
        await store.zadd(ROLES(), {role: clock.now()})
    steps: list[str] = []
    life = Life(store, [Recorder("api", steps)])

    living = await serving(life, steps)

    assert {each["id"] for each in await running_roles(store)} - known.keys() != set()
    assert known.keys() & {each["id"] for each in await running_roles(store)} == {"alive", "elsewhere", "old"}
    life.ask_stop()
    await living


async def test_a_life_logs_its_start_and_why_it_ends(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    steps: list[str] = []
    role = Recorder("worker", steps)
    living = await serving(Life(store, [role]), steps)

    role.leave("it has served long enough")
    await living

    told = {each.message: each.remuda_fields for each in caplog.records if hasattr(each, "remuda_fields")}
    assert told["started"]["role"] == "worker"
    assert told["started"]["listening"] == "127.0.0.1:1"
    assert told["left"] == {"roles": ["worker"], "why": "it has served long enough"}


@pytest.mark.parametrize(
    ("one", "other", "is_good"),
    [
        ("0.4.1", "0.4.9", True),
        ("0.4.1", "0.5.0.dev1", True),
        ("0.4.1", "0.3.0", True),
        ("0.4.1", "0.6.0", False),
        ("0.4.1", "1.4.1", False),
        ("0.4.1", "", False),
    ],
)
def test_versions_may_differ_by_one_minor_version(one: str, other: str, is_good: bool) -> None:
    assert are_compatible(one, other) is is_good


async def test_a_role_says_that_others_are_of_a_version_too_far_away(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for role, version in (("near", __version__), ("far", "99.0.0")):
        await store.hset(ROLE(role), {"name": role, "startedAt": "2026", "version": version})
        await store.zadd(ROLES(), {role: clock.now()})
    steps: list[str] = []
    life = Life(store, [Recorder("api", steps)])

    living = await serving(life, steps)

    told = [vars(each) for each in caplog.records if each.message == "versions too far apart"]
    assert [each["remuda_fields"]["role"] for each in told] == ["far"]
    life.ask_stop()
    await living
