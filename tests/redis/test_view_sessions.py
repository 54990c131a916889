"""Sessions as the view shows them, in states that the grid itself has written."""

import pytest

from remuda.base import clock
from remuda.base.errors import SessionLost
from remuda.base.ids import new_id
from remuda.grid.model import State
from remuda.grid.view import BrowserView, SessionsView
from remuda.grid.view.mask import HIDDEN
from remuda.grid.view.sessions import MAX_CAPABILITIES
from remuda.keyspace import grid
from remuda.store import Store
from web_states import SessionWriter, orchestrator, running

UNKNOWN = "0c605c88-687e-40da-8068-1c1d2bafc6b7"
SECRETS = {
    "browserName": "chrome",
    "proxy": {"proxyType": "manual", "httpProxy": "bob:hush@proxy:8080", "socksPassword": "hush"},
    "goog:chromeOptions": {"args": ["--proxy-server=http://bob:hush@proxy"], "prefs": {"api_key": "hush"}},
}


async def test_a_session_is_shown_in_each_state_of_its_life(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store, slots=3)):
        queued = await writer.queue(browserName="chrome")
        claimed, slot = await writer.claim(browserName="chrome")
        pending = await writer.schedule(browserName="chrome")
        alive = await writer.serve(browserName="chrome")

        active = await SessionsView(store).active(limited_to=None)

        shown = {each.id: each for each in active.sessions}
        assert {each: view.state for each, view in shown.items()} == {
            queued: State.QUEUED,
            claimed: State.QUEUED,
            pending: State.PENDING,
            alive: State.ALIVE,
        }
        assert active.counts == {"queued": 2, "pending": 1, "alive": 1}
        assert (shown[queued].slot, shown[claimed].slot) == (None, slot)
        assert (shown[queued].orchestrator, shown[alive].orchestrator) == (None, "ranch")


async def test_a_session_tells_what_it_asked_for_what_it_got_and_who_uses_it(store: Store) -> None:
    async with running(orchestrator(store)):
        await SessionWriter(store).serve(
            browserName="chrome", browserVersion="130", **{"se:name": "pay by card"}
        )

        [shown] = (await SessionsView(store).active(limited_to=None)).sessions

        assert shown.requested == [BrowserView("chrome", "130", "")]
        assert shown.actual == BrowserView("chrome", "130.0.6723.91", "linux")
        assert shown.name == "pay by card"
        assert (shown.client.host, shown.client.user_agent) == ("10.0.0.7", "selenium/4.27.0 (python linux)")
        assert clock.parse_rfc3339(shown.client.last_seen) <= clock.now()
        assert all((shown.queued_at, shown.pending_at, shown.alive_at))
        assert shown.terminated_at is None
        assert 0 <= shown.age < 60


async def test_a_session_shows_all_of_its_labels_but_no_secret(store: Store) -> None:
    session = await SessionWriter(store).queue(browserName="chrome")
    labels = {"name": "pay by card", "team": "riders", "apiKey": "hush"}
    await store.hset(grid.SESSION_METADATA(session), labels)

    shown = await SessionsView(store).session(session, limited_to=None)

    assert shown.labels == {"name": "pay by card", "team": "riders", "apiKey": "***"}


async def test_the_name_in_the_metadata_goes_before_that_of_the_capabilities(store: Store) -> None:
    session = await SessionWriter(store).queue(**{"se:name": "asked"})
    await store.hset(grid.SESSION_METADATA(session), {"name": "given", "build": "nightly"})

    [shown] = (await SessionsView(store).active(limited_to=None)).sessions

    assert (shown.name, shown.build) == ("given", "nightly")


async def test_what_a_session_got_is_seen_although_its_request_was_seen_before(store: Store) -> None:
    view, writer = SessionsView(store), SessionWriter(store)
    async with running(orchestrator(store)):
        session = await writer.schedule(browserName="chrome")
        before = (await view.active(limited_to=None)).sessions[0].actual
        await store.hset(grid.SESSION_CAPABILITIES(session), {"actual": '{"browserName":"chrome"}'})

        after = (await view.active(limited_to=None)).sessions[0].actual

        assert (before, after) == (None, BrowserView("chrome", "", ""))


async def test_more_sessions_than_the_limit_are_counted_and_can_be_paged_through(store: Store) -> None:
    view, writer = SessionsView(store), SessionWriter(store)
    sessions = [await writer.queue() for _ in range(5)]

    first = await view.active(limited_to=None, limit=2)
    rest = await view.active(limited_to=None, start=2, limit=10)

    assert first.counts["queued"] == 5
    assert (len(first.sessions), len(rest.sessions)) == (2, 3)
    assert {each.id for each in first.sessions + rest.sessions} == set(sessions)


async def test_capabilities_as_big_as_an_extension_are_not_read_into_a_list(store: Store) -> None:
    await SessionWriter(store).queue(browserName="chrome", **{"x:extension": "A" * MAX_CAPABILITIES})

    [shown] = (await SessionsView(store).active(limited_to=None)).sessions

    assert shown.requested == []


async def test_capabilities_that_another_writer_spoilt_break_no_list(store: Store) -> None:
    session = await SessionWriter(store).queue()
    await store.hset(grid.SESSION_CAPABILITIES(session), {"requested": "{no json", "actual": "[1]"})
    await store.hset(grid.SESSION_STATUS(session), {"queuedAt": "yesterday"})

    [shown] = (await SessionsView(store).active(limited_to=None)).sessions

    assert (shown.requested, shown.actual, shown.age) == ([], None, 0.0)


async def test_members_of_the_set_that_are_no_sessions_are_left_out(store: Store) -> None:
    await store.sadd(grid.SESSIONS_ACTIVE(), new_id(), "../../etc", "a\r\nb")

    assert (await SessionsView(store).active(limited_to=None)).sessions == []


async def test_terminated_sessions_come_in_pages_that_hold_each_of_them(store: Store) -> None:
    view, writer = SessionsView(store), SessionWriter(store)
    ended = set()
    for _ in range(150):  # More than Redis keeps in one piece.
        session = await writer.queue()
        await writer.end(session, code="QTIMEOUT")
        ended.add(session)

    pages = [await view.terminated(limited_to=None, limit=20)]
    while pages[-1].cursor is not None:
        pages.append(await view.terminated(limited_to=None, cursor=pages[-1].cursor, limit=20))

    assert len(pages) > 1
    assert {each.id for page in pages for each in page.sessions} == ended
    assert all(each.state is State.TERMINATED and each.terminated_at for each in pages[0].sessions)
    assert [each.queued_at for each in pages[0].sessions] == sorted(
        (each.queued_at for each in pages[0].sessions), key=str, reverse=True
    )


async def test_a_list_never_shows_proxies_and_options_while_the_detail_masks_them(store: Store) -> None:
    view = SessionsView(store)
    session = await SessionWriter(store).queue(**SECRETS)

    listed = str(await view.active(limited_to=None))
    detail = await view.session(session, limited_to=None)

    assert "proxy" not in listed
    assert "Options" not in listed
    [requested] = detail.requested_capabilities
    assert requested["proxy"]["socksPassword"] == HIDDEN
    assert requested["proxy"]["proxyType"] == "manual"
    assert "hush" not in str(detail)


async def test_the_detail_tells_what_happened_in_order(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store)):
        session = await writer.serve(browserName="chrome")
        await writer.end(session, code="DFAILURE", message="lost http://bob:hush@host/")

        log = (await SessionsView(store).session(session, limited_to=None)).log

        codes = ["QUEUED", "NALLOC", "SCHED", "BOOT", "DSTART", "DALIVE", "LSINIT", "NALIVE", "DFAILURE"]
        assert [entry.code for entry in log] == codes
        assert (log[1].component, log[1].level) == ("manager", "info")
        assert log[1].meta == {"slot": "ranch/1"}
        assert log[-1].level == "fail"
        assert log[-1].meaning == "driver process reported an error"
        assert log[-1].meta == {"message": f"lost http://{HIDDEN}@host/"}
        assert abs(clock.parse_rfc3339(log[-1].time) - clock.now()) < 60


async def test_a_log_is_read_on_from_an_entry(store: Store) -> None:
    view, writer = SessionsView(store), SessionWriter(store)
    session = await writer.queue()
    await writer.end(session, code="QTIMEOUT")
    first, second = await view.log(session, limited_to=None)

    assert await view.log(session, limited_to=None, after=first.id) == [second]
    assert await view.log(session, limited_to=None, limit=1) == [first]


@pytest.mark.parametrize("session", ["", "*", "a:b", "x" * 999, UNKNOWN, UNKNOWN.upper(), UNKNOWN + "\n"])
async def test_a_session_that_is_none_is_lost(store: Store, session: str) -> None:
    view = SessionsView(store)

    with pytest.raises(SessionLost):
        await view.session(session, limited_to=None)
    with pytest.raises(SessionLost):
        await view.log(session, limited_to=None)
