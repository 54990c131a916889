"""A process of the herd that is kept running: started, watched, started again when it has ended, and ended at
the end. One that leaves by itself, in good order, is replaced at once, if need be before it is gone; one that
dies, after a pause.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from remuda.base import clock
from remuda.base.ids import RoleId, new_id
from remuda.base.log import get_logger
from remuda.base.processes import until_exit
from remuda.fleet.lifeline import Tether
from remuda.fleet.role import ROLE_ID

log = get_logger(__name__)

FIRST_PAUSE = 0.2
LAST_PAUSE = 10.0
GOOD_LIFE = 30.0
"""A process that lived this long has not failed to start: its restarts begin anew."""


class StartFailed(Exception):
    """A process ended before it was ready; it has said why on standard error."""


class Child:
    """One process with one or more roles."""

    def __init__(
        self,
        roles: Sequence[str],
        environ: Mapping[str, str],
        *,
        args: Sequence[str] = (),
        inherit: Sequence[int] = (),
        is_vital: bool = True,
        hands_over: bool = False,
        rests: bool = False,
        on_death: Callable[[RoleId], None] | None = None,
    ) -> None:
        self.roles = list(roles)
        self.args = list(args)
        self.is_vital = is_vital
        """Whether the herd needs it. What is not vital may fail to start, and is tried again."""
        self.hands_over = hands_over
        """Whether one that leaves is replaced while it still waits for its clients."""
        self.rests = rests
        """Whether one that left by itself is not started again until `keep_running` is called again."""
        self.on_death = on_death
        """Told the id of the one role of a process that did not leave in good order, when it has ended."""
        self.ready = asyncio.Event()
        """Set when it got ready for the first time since it was wanted."""
        self._is_ready = False
        self._environ = dict(environ)
        self._inherit = list(inherit)
        self._process: subprocess.Popen[bytes] | None = None
        self.role = RoleId("")
        """The id of the one role of the process, if its death is told."""
        self._tether = Tether()
        # Nodes of an earlier life hold on to its tether: letting it go would end their sessions.
        self._old_tethers: list[Tether] = []
        self._leaver: asyncio.Task[int] | None = None
        """The end of one that was replaced before it was gone. At most one: they take memory, too."""

    def __str__(self) -> str:
        return " ".join([" + ".join(self.roles), *self.args])

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def keep_running(self) -> None:
        """Starts the process and starts it again whenever it ends; StartFailed if a vital one never got
        ready. Returns only if it rests."""
        pause = FIRST_PAUSE
        while True:
            began = clock.monotonic()
            self._start()
            status = await self._live_once()
            if status is None:
                log.info("process leaves", roles=str(self))
                continue
            if self.is_vital and not self.ready.is_set():
                raise StartFailed
            if status == 0 and self._is_ready:  # By itself, at the end of its lifetime.
                log.info("process left", roles=str(self))
                if self.rests:
                    self.ready.clear()
                    return
                pause = FIRST_PAUSE
                continue
            log.error("process died", roles=str(self), status=status)
            pause = FIRST_PAUSE if clock.monotonic() - began > GOOD_LIFE else min(pause * 2, LAST_PAUSE)
            await asyncio.sleep(pause)

    async def _live_once(self) -> int | None:
        """Waits for the end of the process; its exit status. None as soon as it is to be replaced before."""
        # Both at once: a node that holds on to the lifeline would hide its parent's early death.
        hearing = asyncio.create_task(self._hear_it_out(), name=f"lifeline of {self}")
        ending = asyncio.create_task(self._see_off(), name=f"end of {self}")
        try:
            await asyncio.wait([hearing, ending], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done() and hearing.result():
                self._leaver = ending
                return None
            return await ending
        finally:
            hearing.cancel()
            if ending is not self._leaver:
                ending.cancel()

    async def _see_off(self) -> int:
        """The same as `_ended`; what a process that was killed leaves is cleared away."""
        role = self.role
        status = await self._ended()
        if status and self.on_death is not None:
            self.on_death(role)
        return status

    async def _hear_it_out(self) -> bool:
        """Says when it is ready; whether it is to be replaced although it still runs."""
        if not await self._tether.wait_ready():
            return False
        self._is_ready = True
        self.ready.set()
        if not self.hands_over or not await self._tether.wait_leaving():
            return False
        if self._leaver is not None:
            await asyncio.wait([self._leaver])
        return True

    def _start(self) -> None:
        self._is_ready = False
        if self._process is not None:
            self._keep_tethers()
            self._tether = Tether()
        self.role = RoleId(new_id())
        identity = {ROLE_ID: self.role} if self.on_death else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remuda.cli.main", "run", *self.roles, *self.args],
            env={**os.environ, **self._environ, **self._tether.environ, **identity},
            stdin=subprocess.DEVNULL,
            pass_fds=[self._tether.descriptor, *self._inherit],
            # Ctrl-C reaches only the herd's first process, which ends the others in order.
            start_new_session=True,
        )
        self._tether.handed_over()

    def _keep_tethers(self) -> None:
        """Keeps those whose other end is open. Workers leave often, and the others would pile up."""
        tethers, self._old_tethers = [*self._old_tethers, self._tether], []
        for tether in tethers:
            if tether.is_held():
                self._old_tethers.append(tether)
            else:
                tether.close()

    async def _ended(self) -> int:
        assert self._process is not None
        return await until_exit(self._process)

    def ask_to_leave(self) -> None:
        """Asks the process to leave, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def ask_to_reload(self) -> None:
        """Asks the process to read again what it can, if it runs and heeds that already."""
        if self._process is not None and self._is_ready and self._process.poll() is None:
            self._process.send_signal(signal.SIGHUP)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Asks the process to leave and waits for it; kills it when there is hurry."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self.ask_to_leave()
        ended = asyncio.create_task(self._ended(), name=f"end of {self}")
        hurried = asyncio.create_task(hurry.wait(), name="hurry")
        await asyncio.wait([ended, hurried], return_when=asyncio.FIRST_COMPLETED)
        if process.poll() is None:
            process.kill()
        await ended
        hurried.cancel()

    async def release(self) -> None:
        """Lets go of the tethers and waits until everybody who held on to them has left."""
        for tether in (self._tether, *self._old_tethers):
            await tether.release()
        if self._leaver is not None:
            await self._leaver
