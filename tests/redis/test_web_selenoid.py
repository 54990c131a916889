"""What Selenoid's users look for at the front door."""

import pytest

from remuda import __version__
from remuda.store import Store
from web_states import SessionWriter, get, visiting


@pytest.mark.parametrize("suffix", ["", ".log"])
async def test_a_sessions_log_is_read_as_lines(store: Store, suffix: str) -> None:
    writer = SessionWriter(store)
    session = await writer.queue(browserName="chrome")
    await writer.end(session, code="QTIMEOUT", message="nobody came")

    async with visiting(store) as client, client.get(f"/logs/{session}{suffix}") as answer:
        lines = (await answer.text()).splitlines()

    assert (answer.status, answer.content_type) == (200, "text/plain")
    assert lines[0].endswith(" info manager QUEUED: session has been queued at orchestrators")
    assert lines[1].endswith(' fail manager QTIMEOUT: timed out waiting in queue {"message":"nobody came"}')


async def test_there_is_no_log_of_nobody(store: Store) -> None:
    async with visiting(store) as client:
        assert (await get(client, "/logs/nobody"))[0] == 404


async def test_a_ping_is_answered(store: Store) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, "/ping")

    assert (status, answer["version"]) == (200, __version__)
    assert float(answer["uptime"].removesuffix("s")) >= 0
