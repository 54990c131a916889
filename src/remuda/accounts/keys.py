"""Access keys: what a client signs its requests with by AWS Signature V4, instead of showing its token.

To check a signature the herd needs the secret itself. It is stored nowhere: it is derived from the token's
SHA-256 and a key of the herd, which is a file in the data directory and not in Redis. Whatever reads Redis
alone cannot sign, and an access key ends with its token. Secrets that are encrypted under that same key would
be protected no better, and would need a cipher that Python's own library lacks.
"""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from remuda.accounts.model import Grant, token_id_of
from remuda.base import clock
from remuda.base.errors import Misconfigured, Unauthorized
from remuda.fleet.origin import Scope
from remuda.keyspace.accounts import TOKEN
from remuda.store import Store

FILE = "access.key"
PREFIX = "RMDK"
BITS = 256
SECRET_LENGTH = 40
"""Characters of a secret, as AWS has them."""


class AccessKeys:
    """The access keys of a herd."""

    def __init__(self, store: Store, file: Path) -> None:
        self._store = store
        self._file = file
        self._key = b""

    def pair_of(self, digest: str) -> tuple[str, str]:
        """The access key id and the secret of the token with this SHA-256."""
        key_id = PREFIX + base64.b32encode(bytes.fromhex(digest)).decode().rstrip("=")
        return key_id, self._secret_of(key_id)

    def _secret_of(self, key_id: str) -> str:
        if not self._key:
            self._key = _read_or_make(self._file)
        derived = hmac.new(self._key, f"access key\n{key_id}".encode(), hashlib.sha256).digest()
        return base64.b64encode(derived).decode()[:SECRET_LENGTH]

    async def find(self, key_id: str) -> tuple[Grant, str]:
        """What the access key grants, and its secret; Unauthorized if there is no such key any more."""
        fields = await self._store.hgetall(TOKEN(_digest_of(key_id)))
        if not fields:
            raise Unauthorized
        return _grant_of(fields, _digest_of(key_id)), self._secret_of(key_id)


def _digest_of(key_id: str) -> str:
    encoded = key_id.removeprefix(PREFIX)
    try:
        digest = base64.b32decode(encoded + "=" * (-len(encoded) % 8))
    except ValueError:
        raise Unauthorized from None
    if not key_id.startswith(PREFIX) or len(digest) != BITS // 8:
        raise Unauthorized
    return digest.hex()


def _grant_of(fields: Mapping[str, str], digest: str) -> Grant:
    expires_at = fields.get("expiresAt")
    if expires_at and clock.parse_rfc3339(expires_at) <= clock.now():
        raise Unauthorized
    scopes = frozenset(map(Scope, fields["scopes"].split()))
    return Grant(fields["account"], fields["name"], token_id_of(digest), scopes)


def _read_or_make(file: Path) -> bytes:
    """The herd's key, made by the process that needs it first."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # As a whole or not at all, and never over another: a link fails where there is one.
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_hex(BITS // 8))
        with suppress(FileExistsError):
            file.hardlink_to(draft)
        draft.unlink()
        key = bytes.fromhex(file.read_text().strip())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"The key of access keys, {file}, cannot be read or made: {error}") from error
    if len(key) != BITS // 8:
        raise Misconfigured(f"{file} does not hold the key of access keys")
    return key
