"""Tickets: what they open, for how long, and for whom."""

import msgspec
import pytest

from granted import give_token, id_of_token, revoke_token
from remuda.accounts.model import Grant
from remuda.accounts.tickets import Tickets, is_still_backed
from remuda.base import clock
from remuda.base.errors import Unauthorized
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import UNKNOWN, Origin, Scope
from remuda.fleet.secret import HerdSecret
from remuda.store import Store

USER = Origin(address="192.0.2.7", account="ranch", token="ci", scopes=frozenset({Scope.USE, Scope.ARCHIVE}))
SESSION = SessionId(new_id())


@pytest.fixture
def tickets(store: Store) -> Tickets:
    return Tickets(HerdSecret(store), 60)


async def test_a_ticket_opens_its_session_for_its_account(tickets: Tickets) -> None:
    grant = tickets.read(tickets.mint(SESSION, USER), SESSION)

    assert (grant.account, grant.token, grant.session) == ("ranch", "ci", SESSION)
    assert grant.scopes == {Scope.USE}


async def test_an_operators_ticket_opens_the_session_of_any_account(tickets: Tickets) -> None:
    operator = msgspec.structs.replace(USER, scopes=frozenset({Scope.ADMIN}))

    assert tickets.read(tickets.mint(SESSION, operator), SESSION).sees("another")


async def test_a_ticket_opens_no_other_session(tickets: Tickets) -> None:
    with pytest.raises(Unauthorized):
        tickets.read(tickets.mint(SESSION, USER), SessionId(new_id()))


async def test_a_ticket_expires(store: Store) -> None:
    tickets = Tickets(HerdSecret(store), -1)

    with pytest.raises(Unauthorized, match="expired"):
        tickets.read(tickets.mint(SESSION, USER), SESSION)


async def test_only_the_herd_can_make_one(tickets: Tickets, store: Store) -> None:
    ticket = tickets.mint(SESSION, USER)
    payload, _, signature = ticket.partition(".")
    another = Tickets(HerdSecret(store), 60).mint(SESSION, USER)

    for forged in (
        "",
        ".",
        "a",
        f"{payload}.",
        f"{payload}.{signature[:-2]}",
        f"{payload}A.{signature}",
        another,
    ):
        with pytest.raises(Unauthorized):
            tickets.read(forged, SESSION)
    for text in ("ä.ö", "." * 100, "=" * 9, "a.b.c"):
        with pytest.raises(Unauthorized):
            tickets.read(text, SESSION)


async def test_where_no_token_is_needed_there_are_no_tickets(tickets: Tickets) -> None:
    assert tickets.add_to("ws://herd/session", SESSION, UNKNOWN) == "ws://herd/session"


async def test_a_url_gets_its_ticket_beside_what_its_query_has(tickets: Tickets) -> None:
    plain, keeping = (tickets.add_to(url, SESSION, USER) for url in ("ws://herd/a", "ws://herd/a?keep=1"))

    assert plain.startswith("ws://herd/a?ticket=")
    assert keeping.startswith("ws://herd/a?keep=1&ticket=")
    assert set(plain.partition("ticket=")[2]) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
    )
    assert len(plain) < 150


async def test_a_ticket_is_worth_no_more_than_the_token_behind_it(store: Store, tickets: Tickets) -> None:
    async def new_grant() -> Grant:
        user = msgspec.structs.replace(USER, token_id=await id_of_token(store, "ranch"))
        return tickets.read(tickets.mint(SESSION, user), SESSION)

    assert not await is_still_backed(store, await new_grant())
    await give_token(store, "ranch")
    grant = await new_grant()
    assert await is_still_backed(store, grant)
    await revoke_token(store, "ranch")
    assert not await is_still_backed(store, grant)
    await give_token(store, "ranch", "usage")
    assert not await is_still_backed(store, grant)
    await revoke_token(store, "ranch")
    await give_token(store, "ranch", expires_at=clock.now() - 1)
    assert not await is_still_backed(store, await new_grant())


async def test_a_ticket_does_not_prolong_itself(tickets: Tickets) -> None:
    until = int(clock.now()) + 30
    grant = tickets.read(tickets.mint(SESSION, msgspec.structs.replace(USER, until=until)), SESSION)

    assert grant.until == until
