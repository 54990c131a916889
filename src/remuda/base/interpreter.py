"""Python's own share of a process's start and end, made small: a herd starts many processes."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def without_collector() -> Iterator[None]:
    """Keeps the garbage collector away from what is imported meanwhile. All of that stays, and the collector
    would look through it again and again, now and later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def leave() -> NoReturn:
    """Ends this process with status 0. Returning from `main` would have the interpreter delete every object
    first, which takes a tenth of a second of CPU."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
