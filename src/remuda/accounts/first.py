"""The first admin token: a herd that asks for tokens and has none that could make others makes one itself.

It is written to a file before it is registered. Whatever is killed in between, the next start finds the file
and registers what is in it, so there is never an admin token that nobody knows.
"""

import asyncio
import fcntl
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.accounts.model import ADMIN_TOKEN, may_be_token, new_token
from remuda.accounts.room import is_auth_on
from remuda.accounts.tokens import FirstToken, Tokens
from remuda.base.config import Config, HerdConfig
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.fleet.tasks import repeat
from remuda.keyspace.accounts import ACCOUNTS, ADMINS
from remuda.store import Store

log = get_logger(__name__)

FILE = "admin.token"
LOOK_EVERY = 2.0


async def ensure_admin_token(store: Store, config: Config) -> None:
    """Makes an admin token if tokens are needed and there is none that lasts, and says so once. Any number of
    gateways may do this at the same time: one of them registers its token."""
    if not is_auth_on(config) or await store.scard(ADMINS()):
        return
    data = config[HerdConfig].data
    async with _locked(data):
        if not await store.scard(ADMINS()):
            await _make_admin_token(store, data / FILE)


async def keep_admin_token(store: Store, config: Config, *, every: float = LOOK_EVERY) -> None:
    """Does the same again whenever Redis has lost its data, until it is cancelled."""
    if not is_auth_on(config):
        return
    file = config[HerdConfig].data / FILE

    async def look() -> None:
        if await store.scard(ADMINS()):
            return
        # A gateway of a machine where the token is kept goes first: there people and programs use it.
        if not read_token(file):
            await asyncio.sleep(every)
        await ensure_admin_token(store, config)

    # This bell never rings: it only tells when Redis is back.
    with store.subscribe(bell_of("admin:returns")) as rings:
        await repeat(look, every=every, failure="admin token not looked for", rings=rings)


async def _make_admin_token(store: Store, file: Path) -> None:
    # Without any account the herd's data are new or were lost: then what the file has was not revoked.
    kept = "" if await store.scard(ACCOUNTS()) else read_token(file)
    token = kept or new_token()
    is_written = not kept and _write(file, token)
    if not await _register(store, token):
        # A gateway of another machine was faster.
        if is_written:
            file.unlink(missing_ok=True)
    elif kept:
        _say(f"The admin token in {file} is registered again, because Redis had none.")
    elif is_written:
        _say(f"This is the herd's admin token. It is shown only once, and kept in {file}:", token)
    else:
        _say("This is the herd's admin token. It is shown only once, and could not be kept in a file:", token)


async def _register(store: Store, token: str) -> bool:
    tokens, name = Tokens(store), ADMIN_TOKEN
    while True:
        found = await tokens.register_first(token, name, account=DEFAULT_ACCOUNT)
        if found is not FirstToken.NAME_TAKEN:
            return found is FirstToken.REGISTERED
        # By a token that is not for admins, or one that expires.
        name = f"{ADMIN_TOKEN}-{secrets.token_hex(3)}"


@asynccontextmanager
async def _locked(directory: Path) -> AsyncIterator[None]:
    """Keeps other gateways that share the directory from doing the same, as far as it can be written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        # In a thread: the gateway that has it may be in this very process.
        await asyncio.to_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_token(file: Path) -> str:
    """The token that a file holds; empty if there is none."""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if may_be_token(text) else ""


def _write(file: Path, token: str) -> bool:
    """Writes a token to a file that only its owner can read, as a whole or not at all; whether it could."""
    draft = file.with_name(f"{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_text(token + "\n")
        draft.replace(file)
        return True
    except OSError as error:
        log.warning("admin token not kept", file=str(file), reason=error.strerror)
        return False


def _say(*lines: str) -> None:
    # Not to the log: it hides tokens, and is kept.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
