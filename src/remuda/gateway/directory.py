"""What the door needs to know: where managers, nodes, storages and the API are at this moment."""

from collections.abc import Awaitable
from typing import Protocol

from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.storage.model import StorageId


class Directory(Protocol):
    """Finds processes. A plain Address (a remembered one) is the fast path; else it is awaited.

    Raises Lost for a session or storage that is not there, Unavailable when nobody serves the request.
    """

    def find_manager(self) -> Address | Awaitable[Address]: ...

    def find_node(self, session: SessionId) -> Address | Awaitable[Address]: ...

    def find_api(self) -> Address | Awaitable[Address]: ...

    def find_storage(self, storage: StorageId) -> Address | Awaitable[Address]: ...

    def forget(self, address: Address) -> None:
        """Nobody listens at this address any more: look up again."""


class BrowserDirectory(Directory, Protocol):
    """Finds browsers, too."""

    async def find_chromium(self) -> SessionId | None:
        """A session whose browser has DevTools, if any runs."""

    async def look_again(self, session: SessionId) -> Address:
        """Where the session's node is, whatever is remembered."""
