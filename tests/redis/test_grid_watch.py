"""What ends a session though its client does not ask for it, with a driver of paper."""

import asyncio

import pytest

from chaos import CHROME, PaperDriver
from remuda.base.confinement import unconfined
from remuda.base.ids import NodeId
from remuda.grid.node import watch as watch_module
from remuda.grid.node.ending import Fate
from remuda.grid.node.idle import Idleness
from remuda.grid.node.pulse import Question
from remuda.grid.node.watch import Watch
from remuda.store import Store
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
        driver=PaperDriver(NodeId("node"), CHROME, unconfined()),  # type: ignore[arg-type]
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
