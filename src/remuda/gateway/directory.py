"""What the door needs to know: where managers, nodes, storages and the API are at this moment."""

from collections.abc import Awaitable
from typing import Protocol

from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.storage.model import StorageId


class Viewer(Protocol):
    """What asks: a Grant or an Origin."""

    def sees(self, account: str) -> bool:
        """Whether it may see what belongs to this account."""


class Directory(Protocol):
    """Finds processes. A plain Address (a remembered one) is the fast path; else it is awaited.

    Raises Lost for a session or storage that is not there, Unavailable if no process serves the request.
    """

    def find_manager(self) -> Address | Awaitable[Address]: ...

    def find_node(self, session: SessionId, viewer: Viewer) -> Address | Awaitable[Address]:
        """Where the session's node is. One that the viewer may not see is Lost like one that never was."""

    def is_known(self, session: SessionId, viewer: Viewer) -> bool:
        """Whether the session's node is remembered, and the viewer may see the session."""

    def find_api(self) -> Address | Awaitable[Address]: ...

    def find_storage(self, storage: StorageId) -> Address | Awaitable[Address]: ...

    def forget(self, address: Address, *, may_run: bool) -> None:
        """Look up again: nothing listens at this address any more, or it has broken off an exchange and
        `may_run`."""


class SessionDirectory(Directory, Protocol):
    """Knows sessions, too."""

    async def look_again(self, session: SessionId, viewer: Viewer) -> Address:
        """Where the session's node is, whatever is remembered."""

    async def end_session(self, session: SessionId, reason: str) -> None:
        """Ends a session whose node cannot be reached from here: it hears of it by Redis."""


class BrowserDirectory(SessionDirectory, Protocol):
    """Finds browsers, too."""

    async def find_chromium(self) -> SessionId | None:
        """A session whose browser has DevTools, if any runs."""
