"""What ends a session though its client does not ask for it, with a fake driver."""

import asyncio

import pytest

from chaos import CHROME, FakeDriver
from remuda.base.confinement import unconfined
from remuda.base.ids import NodeId
from remuda.grid.node import watch as watch_module
from remuda.grid.node.ending import Fate
from remuda.grid.node.idle import Idleness
from remuda.grid.node.pulse import Question
from remuda.grid.node.watch import Watch
from remuda.store import Store
from servers import Server
from sweeping import queued

HANG = 0.2


async def answer() -> None: ...


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("driver", "browser", "who"),
    [(hang, answer, "driver"), (answer, hang, "browser"), (hang, hang, "browser")],
)
async def test_who_hangs_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, driver: Question, browser: Question, who: str
) -> None:
    monkeypatch.setattr(watch_module, "LAST_CHANCE", HANG)
    monkeypatch.setattr("remuda.grid.node.pulse.LAST_CHANCE", HANG)
    fate = Fate()
    watch = Watch(
        store,
        await queued(store),
        fate,
        driver=FakeDriver(NodeId("node"), CHROME, unconfined()),  # type: ignore[arg-type]
        browser_pid=None,
        idleness=Idleness(),
        patience=None,
        questions={"driver": driver, "browser": browser},
        hang=HANG,
    )

    watching = asyncio.create_task(watch.run())
    ending = await asyncio.wait_for(fate.decided(), 20)

    assert (ending.code, ending.message) == ("DTIMEOUT", f"The {who} has not answered for {HANG} s")
    watching.cancel()


async def test_a_node_ends_an_idle_session_also_while_redis_is_away(server: Server) -> None:
    async with Store(server.url, timeout=0.2) as store:
        fate = Fate()
        watch = Watch(
            store,
            await queued(store),
            fate,
            driver=FakeDriver(NodeId("node"), CHROME, unconfined()),  # type: ignore[arg-type]
            browser_pid=None,
            idleness=Idleness(),
            patience=1.5,
            questions={},
            hang=0.0,
        )
        server.kill()
        watching = asyncio.create_task(watch.run())

        ending = await asyncio.wait_for(fate.decided(), 20)

        assert (ending.code, ending.message) == ("STIMEOUT", "No command came for 1.5 s")
        watching.cancel()
