"""Patterns that are compiled and searched for in a helper process, which the kernel kills when one of them
takes too long. See `matching.py` for what runs in there.

A limit that the library itself has to keep is none: `re` looks for signals only now and then, and what RE2
takes of the processor grows with the pattern, too.
"""

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from remuda.archive import matching
from remuda.base.errors import Unavailable
from remuda.base.helper import Helper, HelperEnded

COMPILING = 0.5
"""Seconds of the processor to compile a pattern."""
SEARCHING = 0.2
"""Seconds of the processor to look for all patterns in one URL. A good one takes microseconds."""
_LONGEST_ANSWER = 64 << 20
"""Bytes of an answer, which names every pattern that is wrong."""


class UsedUp(Exception):
    """The process was killed, or died of a lack of memory, while it tried this pattern."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern


class Matcher:
    """The process, which has the patterns compiled. It is asked for one URL at a time."""

    def __init__(self, helper: Helper, busy: mmap.mmap, patterns: Sequence[str]) -> None:
        self._helper = helper
        self._busy = busy
        self._patterns = patterns
        self.wrong: dict[str, str] = {}
        """Patterns that are no regular expressions, with the reason."""

    @classmethod
    async def start(cls, patterns: Sequence[str], values: Mapping[str, str], *, seconds: int = 0) -> Self:
        """A process with these patterns; `values` are for their placeholders. In all it may use so many
        seconds of the processor, if that is not 0. UsedUp if one of them cannot be compiled in time."""
        shared = os.memfd_create("busy")
        try:
            os.ftruncate(shared, matching.BUSY.size)
            busy = mmap.mmap(shared, matching.BUSY.size)
            matching.BUSY.pack_into(busy, 0, -1)
            helper = await Helper.start(
                *(matching.__name__, str(shared), str(seconds)), longest=_LONGEST_ANSWER, pass_fds=[shared]
            )
        except OSError as error:
            raise Unavailable(f"Ignore patterns cannot be tried now: {error.strerror}") from error
        finally:
            os.close(shared)
        matcher = cls(helper, busy, patterns)
        limits = {"compiling": COMPILING, "searching": SEARCHING}
        wrong = await matcher._ask({"patterns": patterns, "values": values, **limits})
        matcher.wrong = {patterns[number]: reason for number, reason in wrong}
        return matcher

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._helper.is_alive

    async def find(self, url: str) -> str | None:
        """The first pattern that matches. UsedUp if that takes too long; the process is gone then."""
        number = await self._ask(url)
        return None if number is None else self._patterns[number]

    async def _ask(self, request: object) -> Any:
        try:
            return json.loads(await self._helper.ask(json.dumps(request).encode()))
        except HelperEnded as error:
            (number,) = matching.BUSY.unpack_from(self._busy, 0)
            if number < 0:
                raise Unavailable("The process that tries ignore patterns has died") from error
            raise UsedUp(self._patterns[number]) from error

    async def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        await self._helper.stop()
