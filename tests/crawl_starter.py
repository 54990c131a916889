"""Starts crawls as processes that can be killed: a line on standard input starts one, and its process id and
exit status are printed. It forks, so that not each of them imports everything anew.

    python crawl_starter.py URL DIRECTORY
"""

import os
import sys
from pathlib import Path

import uvloop

import remuda.archive.crawler.feeds  # noqa: F401  What a crawl imports when it needs it.
from remuda.archive.ignores import Ignores
from sites import Heard, crawl, order_for


async def _run(url: str, directory: Path) -> None:
    order = order_for(url, split_size=30_000, sitemaps=True)
    await crawl(order, directory, heard=Heard())


def main() -> None:
    url, directory = sys.argv[1], Path(sys.argv[2])
    Ignores(("x",))
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            uvloop.run(_run(url, directory))
            os._exit(0)
        _say(child)
        _say(os.waitpid(child, 0)[1])


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
