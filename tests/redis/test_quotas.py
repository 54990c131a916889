"""Quotas: counted with the usage, refuse what is new when they are used up, and tell the webhook."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

import servers
from grids import all_sessions
from managers import Client, open_orchestrator
from remuda.accounts.accounts import Accounts
from remuda.base import clock
from remuda.base.errors import AccountLimitReached, InvalidArgument
from remuda.cli.rooms import ROOMS
from remuda.fleet.origin import Origin
from remuda.fleet.uses import Uses
from remuda.keyspace.metering import METER_COUNTER, QUOTA_EVENTS, QUOTA_USE, QUOTAS
from remuda.metering.model import DAY_MS, Level, Services
from remuda.metering.push import Event, Metering, Pushed
from remuda.metering.quotas import QuotaChange, Quotas, QuotaView, period_start
from remuda.metering.reconcile import Reconciler
from remuda.metering.replay import Replay
from remuda.metering.spool import Spool
from remuda.metering.webhooks import Webhooks, sign
from remuda.store import Store
from remuda.store.census import take_census
from scripted_workers import ScriptedWorker, front_door, workers
from waiting import eventually

SERVICES = Services(service for room in ROOMS for service in room.services)
SECONDS = "grid.browserSeconds"
STORED = "artifacts.storageUtilized"
OPERATOR = Origin(address="127.0.0.1")


@pytest.fixture
async def metering(store: Store) -> Metering:
    return Metering(store, services=SERVICES)


@pytest.fixture
def quotas(store: Store) -> Quotas:
    return Quotas(store, SERVICES, precision=15)


async def use(metering: Metering, seconds: int, *, timestamp: int | None = None) -> None:
    params = {"accountId": "ranch", "seconds": seconds}
    await metering.push_all([metering.check("useBrowser", params, service="grid", timestamp=timestamp)])


async def keep(metering: Metering, size: int) -> None:
    action = "addArtifacts" if size > 0 else "removeArtifacts"
    params = {"accountId": "ranch", "byteLength": abs(size), "numberOfObjects": 1}
    await metering.push_all([metering.check(action, params, service="artifacts")])


async def only(quotas: Quotas) -> QuotaView:
    (view,) = await quotas.of(["ranch"])
    return view


async def told(store: Store) -> list[dict[str, object]]:
    return [json.loads(event) for event in await store.lrange(QUOTA_EVENTS())]


async def test_what_is_used_counts_towards_the_quota(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=100, period="day")})
    await asyncio.gather(*(use(metering, 2) for _ in range(20)))

    view = await only(quotas)
    midnight = period_start("day", clock.now_ms()) + DAY_MS
    assert (view.used, view.hard, view.soft, view.period) == (40, 100, None, "day")
    assert view.frees_at == clock.rfc3339(midnight / 1000)
    assert await take_census(store) == []


async def test_a_new_quota_begins_with_what_was_used_before_it(metering: Metering, quotas: Quotas) -> None:
    now = clock.now_ms()
    await use(metering, 7)
    await use(metering, 1000, timestamp=period_start("day", now) - DAY_MS)

    await quotas.change("ranch", {SECONDS: QuotaChange(hard=100, period="day")})
    await use(metering, 1)

    assert (await only(quotas)).used == 8


async def test_a_hard_quota_that_is_used_up_refuses_new_sessions_until_its_period_ends(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=10, period="month")})
    uses = Uses(store, services=("grid", "artifacts"))
    await use(metering, 9)
    await uses.take("ranch", "a")
    await use(metering, 1)

    with pytest.raises(AccountLimitReached) as refusal:
        await uses.take("ranch", "b")
    frees_at = (await only(quotas)).frees_at
    assert frees_at is not None
    assert "has used 10 of 10 grid.browserSeconds this month" in refusal.value.message
    assert refusal.value.retry_after == pytest.approx(clock.parse_rfc3339(frees_at) - clock.now(), abs=30)

    # Other services and accounts go on, and so does this one when the month is over.
    await Uses(store, services=("playwright",)).take("ranch", "c")
    await uses.take("farm", "d")
    await store.hset(QUOTA_USE("ranch"), {f"{SECONDS}.until": clock.now_ms() - 1})
    await uses.take("ranch", "b")
    assert (await only(quotas)).used == 0


async def test_a_quota_of_what_is_stored_frees_when_something_is_deleted(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await keep(metering, 400)
    await quotas.change("ranch", {STORED: QuotaChange(hard=1000)})
    uses = Uses(store, services=("grid", "artifacts"))
    await keep(metering, 700)

    with pytest.raises(AccountLimitReached, match=r"has used 1100 of 1000 .* frees when some of it"):
        await uses.take("ranch", "a")
    await keep(metering, -700)
    await uses.take("ranch", "a")


async def test_a_correction_of_what_is_stored_counts_towards_the_quota(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {STORED: QuotaChange(hard=1000)})
    await keep(metering, 1100)

    reconciler = Reconciler(store, SERVICES, precision=15)
    await reconciler.correct(OPERATOR, "artifacts", Level.ACCOUNTS, "ranch", "storageUtilized", 300)
    await keep(metering, 1)

    assert (await only(quotas)).used == 301
    await Uses(store, services=("artifacts",)).take("ranch", "a")


# Events


PUTS = "s3.PutObject"


def put(metering: Metering, event: str, *, account: str = "ranch", action: str = "putObject") -> Event:
    params = {"bucket": account, "accountId": account, "newByteLength": 5, "oldByteLength": None}
    return metering.check(action, params, event_id=event)


async def test_a_push_over_a_hard_quota_is_refused_and_changes_nothing(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {PUTS: QuotaChange(hard=1, period="day")})
    params = {"accountId": "ranch", "newByteLength": 5, "oldByteLength": None}
    assert await metering.push("putObject", params, event_id="first")

    with pytest.raises(AccountLimitReached, match=r"has used 1 of 1 s3\.PutObject this day") as refusal:
        await metering.push("putObject", params, event_id="second")

    assert 0 < refusal.value.retry_after <= 86400
    assert await store.get(METER_COUNTER("s3", "accounts", "ranch", "numberOfObjects")) == "1"
    # Its id is not used up: when the quota is higher, it counts.
    await quotas.change("ranch", {PUTS: QuotaChange(hard=2)})
    assert await metering.push("putObject", params, event_id="second")


async def test_copies_of_an_event_that_is_refused_are_refused_too(metering: Metering, quotas: Quotas) -> None:
    await quotas.change("ranch", {PUTS: QuotaChange(hard=1, period="day")})
    await metering.push_list([put(metering, "first")])

    pushing = [metering.push_list([put(metering, "second")]) for _ in range(3)]
    outcomes = await asyncio.gather(*pushing, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [AccountLimitReached] * 3


async def test_what_was_counted_before_is_a_duplicate_also_when_the_quota_is_used_up(
    metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {PUTS: QuotaChange(hard=1, period="day")})
    await metering.push_list([put(metering, "a")])

    pushed = await metering.push_list([put(metering, "a")])

    assert (pushed.accepted, pushed.duplicates) == (0, 1)


async def test_a_quota_refuses_only_what_adds_to_it(metering: Metering, quotas: Quotas) -> None:
    await quotas.change("ranch", {"s3.storageUtilized": QuotaChange(hard=5)})
    await metering.push_list([put(metering, "a")])
    with pytest.raises(AccountLimitReached, match="frees when some of it is deleted"):
        await metering.push_list([put(metering, "b", action="copyObject")])

    await metering.push("headBucket", {"accountId": "ranch"})
    deleted = {"accountId": "ranch", "byteLength": 5, "numberOfObjects": 1}
    await metering.push("deleteObject", deleted)

    await metering.push_list([put(metering, "b")])


async def test_callers_that_share_a_round_trip_are_refused_each_for_itself(
    metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {PUTS: QuotaChange(hard=1, period="day")})
    await metering.push_list([put(metering, "a")])

    refused, counted, of_herd = await asyncio.gather(
        metering.push_list([put(metering, "b")]),
        metering.push_list([put(metering, "c", account="farm")]),
        metering.push_all([put(metering, "d")]),
        return_exceptions=True,
    )

    assert isinstance(refused, AccountLimitReached)
    assert (counted, of_herd) == (Pushed(1), Pushed(1))
    assert (await only(quotas)).used == 2


async def test_a_long_list_is_counted_as_a_whole_or_not_at_all(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    """Also where several scripts count it, and the first of them reaches the quota."""
    await quotas.change("ranch", {PUTS: QuotaChange(hard=10, period="day")})
    of_farm = [put(metering, f"f{number}", account="farm") for number in range(300)]
    of_ranch = [put(metering, f"r{number}") for number in range(700)]

    whole = await metering.push_list([*of_farm, *of_ranch])
    again = await metering.push_list([*of_farm, *of_ranch])
    later = [put(metering, f"l{number}", account="farm") for number in range(300)]
    with pytest.raises(AccountLimitReached):
        await metering.push_list([*later, put(metering, "last")])

    assert (whole, again) == (Pushed(1000), Pushed(0, 1000))
    counters = [METER_COUNTER("s3", "accounts", name, "numberOfObjects") for name in ("farm", "ranch")]
    assert [await store.get(each) for each in counters] == ["300", "700"]


async def test_what_waits_on_disk_is_counted_whatever_the_quota(
    server: servers.Server, tmp_path: Path
) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store:
        spool, quotas = Spool(tmp_path), Quotas(store, SERVICES, precision=15)
        metering = Metering(store, services=SERVICES, spool=spool)
        server.kill()
        await eventually(lambda: not store.is_connected)
        kept = await metering.push_list([put(metering, "a")])
        await spool.close()
        server.start()
        await eventually(lambda: store.is_connected)
        await quotas.change("ranch", {PUTS: QuotaChange(hard=1, period="day")})
        await metering.push_list([put(metering, "b")])

        await Replay(store, metering, tmp_path).replay_spool()

        assert kept.spooled == 1
        assert (await only(quotas)).used == 2


async def test_each_limit_is_told_once_when_it_is_reached(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=10, soft=5, period="day")})

    for _ in range(12):
        await use(metering, 1)

    assert [(each["kind"], each["limit"], each["used"]) for each in await told(store)] == [
        ("soft", 5, 5),
        ("hard", 10, 10),
    ]


async def test_each_time_that_a_limit_is_reached_is_told_under_an_id_of_its_own(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {STORED: QuotaChange(soft=100), SECONDS: QuotaChange(soft=5, period="day")})

    await keep(metering, 120)
    await keep(metering, -120)
    await keep(metering, 120)
    await use(metering, 5)
    await quotas.change("ranch", {SECONDS: QuotaChange(soft=10, period="day")})
    await use(metering, 5)

    ids = [str(each["id"]) for each in await told(store)]
    assert [each.rpartition("/")[0] for each in ids] == [f"ranch/{STORED}/soft"] * 2 + [
        f"ranch/{SECONDS}/soft"
    ] * 2
    assert len(set(ids)) == 4


async def test_a_new_period_begins_at_nothing_and_what_comes_late_does_not_count_in_it(
    store: Store, metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=100, period="day")})
    yesterday = period_start("day", clock.now_ms()) - DAY_MS
    # As if it were the day before.
    await store.hset(QUOTA_USE("ranch"), {SECONDS: 90, f"{SECONDS}.since": yesterday})
    await use(metering, 3)
    await use(metering, 50, timestamp=yesterday + 1000)

    assert (await only(quotas)).used == 3


async def test_a_clock_that_is_ahead_does_not_begin_the_next_period(
    metering: Metering, quotas: Quotas
) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=100, period="day")})
    await use(metering, 60)
    ends = (await only(quotas)).frees_at

    event = metering.check("useBrowser", {"accountId": "ranch", "seconds": 5}, service="grid")
    await metering.push_all([replace(event, timestamp=event.timestamp + DAY_MS)])
    await use(metering, 7)

    assert ((await only(quotas)).used, (await only(quotas)).frees_at) == (72, ends)


@pytest.mark.parametrize("day", ["2024-02-29", "2025-03-01", "2025-12-31", "2026-01-01"])
async def test_a_month_begins_on_its_first_day(
    store: Store, metering: Metering, quotas: Quotas, day: str
) -> None:
    await store.hset(QUOTAS("ranch"), {SECONDS: "100 - month"})
    moment = int(clock.parse_rfc3339(f"{day}T12:00:00Z") * 1000)
    await use(metering, 1, timestamp=moment)

    use_of = await store.hgetall(QUOTA_USE("ranch"))
    first = clock.parse_rfc3339(f"{day[:8]}01T00:00:00Z") * 1000
    assert int(use_of[f"{SECONDS}.since"]) == first == period_start("month", moment)
    assert clock.rfc3339(int(use_of[f"{SECONDS}.until"]) / 1000)[8:10] == "01"
    assert 28 * DAY_MS <= int(use_of[f"{SECONDS}.until"]) - first <= 31 * DAY_MS


async def test_a_quota_is_changed_in_parts_and_removed(store: Store, quotas: Quotas) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=10, period="day")})
    await quotas.change("ranch", {SECONDS: QuotaChange(soft=8)})
    assert await store.hgetall(QUOTAS("ranch")) == {SECONDS: "10 8 day"}

    await quotas.change("ranch", {SECONDS: QuotaChange(hard=None)})
    assert await store.hgetall(QUOTAS("ranch")) == {SECONDS: "- 8 day"}

    await quotas.change("ranch", {SECONDS: None})
    assert not await store.exists(QUOTAS("ranch"), QUOTA_USE("ranch"))


@pytest.mark.parametrize("change", [QuotaChange(hard=None), QuotaChange(soft=None), None])
async def test_a_quota_that_there_is_not_can_be_removed(quotas: Quotas, change: QuotaChange | None) -> None:
    assert await quotas.change("ranch", {SECONDS: change}) == []


async def test_an_account_takes_its_quotas_along(store: Store, quotas: Quotas) -> None:
    await quotas.change("ranch", {SECONDS: QuotaChange(hard=10, period="day")})

    await Accounts(store).delete("ranch", keep_last_admin=False)

    assert not await store.exists(QUOTAS("ranch"), QUOTA_USE("ranch"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("grid.nothing", QuotaChange(hard=1, period="day")),
        ("none.commands", QuotaChange(hard=1, period="day")),
        ("commands", QuotaChange(hard=1, period="day")),
        (SECONDS, QuotaChange(hard=1)),
        (STORED, QuotaChange(hard=1, period="day")),
    ],
)
async def test_a_quota_that_cannot_be_is_refused(quotas: Quotas, name: str, change: QuotaChange) -> None:
    with pytest.raises(InvalidArgument):
        await quotas.change("ranch", {name: change})


# What clients hear


async def spend(store: Store, quotas: Quotas, name: str, account: str) -> str:
    """Has the account use up a quota; when that frees."""
    await quotas.change(account, {name: QuotaChange(hard=10, period="day")})
    await store.hset(QUOTA_USE(account), {name: 10})
    (view,) = await quotas.of([account])
    assert view.frees_at is not None
    return view.frees_at[:19] + "Z"


async def test_a_session_over_the_quota_is_refused_before_it_is_written_down(
    store: Store, quotas: Quotas, client: Client
) -> None:
    frees = await spend(store, quotas, SECONDS, "qa")
    await open_orchestrator(store, 1)

    refused = await client.ask(**{"X-Remuda-Account": "qa"})

    wait = int(refused.headers["Retry-After"])
    assert refused.status == 429
    assert 0 < wait <= 86400
    assert refused.value["error"] == "session not created"
    assert refused.value["message"] == (
        f"Account qa has used 10 of 10 grid.browserSeconds this day, which is its quota; it frees at {frees}"
    )
    assert refused.value["data"] == {"retryAfter": wait}
    assert await all_sessions(store) == []


async def test_a_connection_over_the_quota_is_refused(store: Store, quotas: Quotas) -> None:
    await spend(store, quotas, "playwright.Connect", "default")

    async with workers(store, ScriptedWorker("w")), front_door(store) as door:
        status, error, headers = await door.refusal()

    assert status == 429
    assert "has used 10 of 10 playwright.Connect this day" in error["message"]
    assert int(headers["Retry-After"]) > 0


# Webhooks


class Receiver:
    """An operator's program."""

    def __init__(self) -> None:
        self.status = 200
        self.received: list[tuple[bytes, str, str]] = []

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        timestamp = request.headers["X-Remuda-Timestamp"]
        self.received.append((body, timestamp, request.headers["X-Remuda-Signature"]))
        return web.Response(status=self.status)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Receiver, str]]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/hook", receiver.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield receiver, f"http://127.0.0.1:{port}/hook"
    finally:
        await runner.cleanup()


async def test_a_webhook_is_signed_and_delivered_in_order(store: Store) -> None:
    await store.rpush(QUOTA_EVENTS(), '{"id":"a"}', '{"id":"b"}')

    async with listening() as (receiver, url):
        assert await Webhooks(store, url, secret="hay").deliver_webhooks() == 2

    assert [body for body, _, _ in receiver.received] == [b'{"id":"a"}', b'{"id":"b"}']
    for body, timestamp, signature in receiver.received:
        assert hmac.compare_digest(signature, "sha256=" + sign("hay", timestamp, body))
        assert abs(int(timestamp) - clock.now()) < 60
    assert not await store.exists(QUOTA_EVENTS())


async def test_what_the_webhook_did_not_take_is_tried_again_after_a_pause(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.rpush(QUOTA_EVENTS(), '{"id":"a"}')
    now = 1000.0
    monkeypatch.setattr("remuda.metering.webhooks.clock.monotonic", lambda: now)

    async with listening() as (receiver, url):
        webhooks, receiver.status = Webhooks(store, url, secret="hay"), 503
        for _ in range(3):
            assert await webhooks.deliver_webhooks() == 0
        assert len(receiver.received) == 1
        now += 1.0
        await webhooks.deliver_webhooks()
        now += 1.0
        await webhooks.deliver_webhooks()
        assert len(receiver.received) == 2, "the second pause is longer"

        # A process that takes over knows of no pause, and loses nothing.
        receiver.status = 204
        assert await Webhooks(store, url, secret="hay").deliver_webhooks() == 1

    assert not await store.exists(QUOTA_EVENTS())


async def test_a_webhook_that_nobody_listens_at_keeps_its_events(store: Store) -> None:
    await store.rpush(QUOTA_EVENTS(), '{"id":"a"}')

    assert await Webhooks(store, "http://127.0.0.1:1/hook", secret="").deliver_webhooks() == 0
    assert await store.llen(QUOTA_EVENTS()) == 1


async def test_without_a_webhook_nothing_is_kept_for_it(store: Store) -> None:
    await store.rpush(QUOTA_EVENTS(), '{"id":"a"}')

    assert await Webhooks(store, "", secret="").deliver_webhooks() == 0
    assert not await store.exists(QUOTA_EVENTS())
