"""Commands that are done together or not at all, if need be only as long as a certain key is there."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from remuda.keyspace.key import ChannelName, Name
from remuda.store.commands import Commands, Value
from remuda.store.script import any_key, load_script
from remuda.store.wire import Reply, translate

if TYPE_CHECKING:
    from remuda.store.store import Store


_PROVIDED = load_script(
    __file__, "provided.lua", keys=[any_key("provided"), any_key("touched")], args=["commands"]
)


class Transaction(Commands):
    """Between MULTI and EXEC."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._packed: list[bytes] = []
        self._replies: list[Reply] = []
        self._messages: dict[Reply, bytes] = {}

    def send(self, *args: Value) -> Awaitable[Any]:
        reply = asyncio.get_running_loop().create_future()
        self._packed.append(self._store.pack(args))
        self._replies.append(reply)
        return reply

    def publish(self, channel: ChannelName, message: Value = "") -> Awaitable[int]:
        # Sent right behind EXEC: up to 7.0, Redis writes a message that this very connection listens to
        # into the middle of EXEC's reply. A message is a hint, so one too many does no harm.
        reply = asyncio.get_running_loop().create_future()
        self._messages[reply] = self._store.pack(("PUBLISH", channel, message))
        return reply

    async def execute(self) -> None:
        """Sends the gathered commands; afterwards their replies are there."""
        if not self._packed and not self._messages:
            return
        results = await self._store.send_together(self._packed, then=self._messages)
        for reply, result in zip(self._replies, results, strict=True):
            if isinstance(result, hiredis.ReplyError):
                raise translate(result)
            reply.set_result(result)


class ProvidedTransaction(Commands):
    """In a script, which checks that the key exists: it cannot be removed between the check and the change.

    Not with WATCH: the connection is shared, and another's EXEC would end the watch.
    """

    def __init__(self, store: "Store", provided: Name) -> None:
        self._store = store
        self._provided = provided
        self._commands: list[Sequence[Value]] = []
        self._replies: list[Reply] = []
        self.is_done = False
        """Whether the commands were done, once the block has ended; if not, their replies are None."""

    def send(self, *args: Value) -> Awaitable[Any]:
        reply = asyncio.get_running_loop().create_future()
        self._commands.append(args)
        self._replies.append(reply)
        return reply

    async def execute(self) -> None:
        """Has the script do the gathered commands, or none of them."""
        if not self._commands:
            return
        touched = [arg for command in self._commands for arg in command if isinstance(arg, Name)]
        parts = [part for command in self._commands for part in (len(command), *command)]
        keys = [self._provided, *dict.fromkeys(touched)]
        results = await self._store.run(_PROVIDED, keys=keys, args=parts)
        self.is_done = results is not None
        for reply, result in zip(self._replies, results or [None] * len(self._replies), strict=True):
            reply.set_result(result)
