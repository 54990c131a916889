"""A Playwright browser of one's own against one that its client launches: `python -m bench.own_browsers`.

Rounds are interleaved, because the machine is never quiet. All launch the same program; the herds are real.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psutil
from playwright.async_api import Browser, Playwright, async_playwright

from bench.report import Samples, Target, ratio, report
from remuda.base.config import Config
from remuda.base.confinement import ProtectionConfig
from remuda.fleet.browsers import BrowserConfig
from remuda.playwright.browsers import find_launch

COLD, WARM, LAUNCH = "own, cold", "own, warm", "plain launch()"
START_TIMEOUT = 120_000
PAUSE = 0.5


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    samples = asyncio.run(measure(parser.parse_args().rounds))
    ready = samples["until the first page, s"]
    targets = [
        # The client's driver runs already; the herd's is started for each browser, so that none shares its
        # process with another. It takes 0.7 s of CPU to load.
        Target(f"{COLD} / {LAUNCH}", ratio(ready[COLD], ready[LAUNCH]), 3.0, is_ceiling=True),
        Target(f"{WARM} / {LAUNCH}", ratio(ready[WARM], ready[LAUNCH]), 1.0, is_ceiling=True),
    ]
    report("own_browsers", samples, targets)


class Herd(NamedTuple):
    """A herd: its address for a browser of one's own, and its first process."""

    url: str
    process: psutil.Process

    def below(self) -> set[psutil.Process]:
        """All its processes."""
        return set(self.process.children(recursive=True))

    async def settle(self) -> None:
        """Waits until it starts and ends nothing any more."""
        before = self.below()
        while (now := await asyncio.to_thread(self._look)) != before:
            before = now

    def _look(self) -> set[psutil.Process]:
        time.sleep(PAUSE)
        return self.below()


async def measure(rounds: int) -> Samples:
    """Seconds until a client has a page, and the megabytes of one browser with its driver."""
    ready: dict[str, list[float]] = {COLD: [], WARM: [], LAUNCH: []}
    memory: list[float] = []
    with herd() as cold, herd(REMUDA_PLAYWRIGHT_WARM="1") as warm:
        async with async_playwright() as playwright:
            for each in (cold, warm):
                # The first client waits for the worker to start.
                await (await playwright.chromium.connect(each.url, timeout=START_TIMEOUT)).close()
            for _ in range(rounds):
                await cold.settle()
                await warm.settle()
                before = cold.below()
                for name, of in ((COLD, cold), (WARM, warm), (LAUNCH, None)):
                    began = time.perf_counter()
                    browser = await obtain(playwright, of)
                    await browser.new_page()
                    ready[name].append(time.perf_counter() - began)
                    if name == COLD:
                        memory.append(megabytes(cold.below() - before))
                    await browser.close()
    return {"until the first page, s": ready, "memory of a browser with its driver, MB": {COLD: memory}}


def megabytes(processes: Iterable[psutil.Process]) -> float:
    """What they take, shared pages in proportion."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 1e6


async def obtain(playwright: Playwright, of: Herd | None) -> Browser:
    if of is not None:
        return await playwright.chromium.connect(of.url)
    # As this process's own user, which may be root, unlike the herd's browsers.
    options = dict(
        find_launch("chromium", Config(BrowserConfig(), ProtectionConfig(browser_uids=""))).options
    )
    return await playwright.chromium.launch(
        executable_path=options.get("executablePath"),
        args=options["args"],
        chromium_sandbox=options["chromiumSandbox"],
    )


@contextmanager
def herd(**environ: str) -> Iterator[Herd]:
    """A whole herd with a Redis of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "remuda.cli.main", "up", "--port", "0", "--data", "data"],
            cwd=directory,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "ready\n":
                    break
            (url,) = [word for line in lines for word in line.split() if word.startswith("http://")]
            yield Herd(f"{url.replace('http', 'ws')}/?own=true", psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
