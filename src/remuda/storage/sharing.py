"""Shares of artifacts, as the APIs of all rooms that have artifacts offer them: see `accounts/shares.py`."""

from collections.abc import Sequence

from msgspec import Struct

from remuda.accounts.audit import Audit
from remuda.accounts.model import read_duration
from remuda.accounts.shares import DEFAULT_LIFETIME, LONGEST_LIFETIME, Shares
from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.fleet.origin import Origin
from remuda.fleet.secret import HerdSecret
from remuda.storage.model import Owner
from remuda.store import Store


class ShareRequest(Struct):
    """For how long an artifact is shared, such as 12h or 7d; the default is 7d."""

    expires: str | None = None


class Share(Struct, rename="camel"):
    """Where anybody can read the artifact, and until when; earlier it ends only with the artifact."""

    url: str
    expires_at: str


class Sharing:
    """Shares artifacts. Whether the client may read them has been checked before."""

    def __init__(self, store: Store) -> None:
        self._secret = HerdSecret(store)
        self._shares = Shares(self._secret)
        self._audit = Audit(store)

    async def share(
        self, origin: Origin, wanted: ShareRequest, *, storage: str, owner: Owner, names: Sequence[str]
    ) -> Share:
        """The URL of the first of these artifacts, good for all of them."""
        lifetime = DEFAULT_LIFETIME if wanted.expires is None else read_duration(wanted.expires)
        if lifetime > LONGEST_LIFETIME:
            raise InvalidArgument(f"A share is good for at most {LONGEST_LIFETIME / 86400:g}d.")
        until = clock.now() + lifetime
        await self._secret.read()
        path = self._shares.make(storage, str(owner), names, until=until)
        expires_at = clock.rfc3339(int(until))
        await self._audit.record(origin, "artifact.share", f"{owner}/{names[0]}", expiresAt=expires_at)
        return Share(f"{origin.url}{path}", expires_at)
