"""Drivers that do not start: the client hears at once what is wrong with them, and the slot comes back."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from grids import codes_of, set_timeouts
from herds import DEADLINE, running_herd
from installed import BROWSERS
from remuda.base.ids import SessionId
from remuda.keyspace import grid
from remuda.keyspace.log_codes import BY_CODE
from remuda.store import Store
from waiting import eventually

REQUEST = '{"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}'


@pytest.mark.parametrize(
    ("behaviour", "patience", "code", "message"),
    [
        ("exec sleep 600", 0.3, "DTIMEOUT", "The driver did not listen within 0.3 s"),
        ("echo out of order; exit 1", DEADLINE, "DFAILURE", "The driver ended at once: out of order"),
    ],
)
async def test_a_driver_that_does_not_start_is_named_as_the_cause(
    store: Store, redis_url: str, behaviour: str, patience: float, code: str, message: str
) -> None:
    await set_timeouts(store, driverStartup=patience)
    with tempfile.TemporaryDirectory(prefix="herd-") as directory:
        driver = Path(directory) / "chromedriver"
        real = BROWSERS["chrome"].driver
        driver.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n{behaviour}\n')
        driver.chmod(0o755)

        with running_herd(
            Path(directory) / "data",
            *("--redis", redis_url, "--slots", "1"),
            environ={"REMUDA_CHROMEDRIVER": str(driver)},
        ) as herd:
            status, content, _ = await asyncio.to_thread(herd.request, "POST", "/session", REQUEST)

            assert (status, content["value"]["error"]) == (500, "session not created")
            assert content["value"]["message"].startswith(message)
            (session,) = await store.smembers(grid.SESSIONS_TERMINATED())
            await eventually(lambda: slot_is_back(store))
            codes = await codes_of(store, SessionId(session))
            node_codes = [each for each in codes if BY_CODE[each].component == "node"]
            assert node_codes == ["BOOT", "DSTART", code, "TERM", "HALT"]


async def slot_is_back(store: Store) -> bool:
    (orchestrator,) = await store.smembers(grid.ORCHESTRATORS())
    return await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator)) == 1
