"""Tokens under test."""

from remuda.accounts.model import digest_of, token_id_of
from remuda.accounts.tokens import Tokens
from remuda.base import clock
from remuda.fleet.origin import Scope
from remuda.keyspace.accounts import TOKEN, TOKENS
from remuda.store import Store


async def give_token(
    store: Store, account: str, *scopes: str, name: str = "ci", expires_at: float = 0
) -> str:
    """A new token of the account, good for these scopes or for `use`."""
    wanted = {Scope(each) for each in scopes or ("use",)}
    token, _ = await Tokens(store).create(name, account=account, scopes=wanted)
    if expires_at:
        await store.hset(TOKEN(digest_of(token)), {"expiresAt": clock.rfc3339(expires_at)})
    return token


async def revoke_token(store: Store, account: str, name: str = "ci") -> None:
    """Ends a token."""
    await Tokens(store).revoke(name, account=account, keep_last_admin=False)


async def id_of_token(store: Store, account: str, name: str = "ci") -> str:
    """What tells a token from a later one of the same name."""
    return token_id_of(await store.hget(TOKENS(account), name) or "")
