"""How guessing is slowed down, and what counts as one client."""

import asyncio

import pytest

from remuda.accounts import guesses
from remuda.accounts.guesses import FREE, LONGEST, MAX_DELAYED_EACH, Guesses, source_of
from remuda.base.errors import TooManyGuesses


def test_the_first_wrong_tokens_cost_nothing_then_each_takes_twice_as_long() -> None:
    known = Guesses()

    delays = [known.note("a") for _ in range(FREE + 8)]

    assert delays[:FREE] == [0.0] * FREE
    assert delays[FREE:] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST, LONGEST]
    assert known.note("b") == 0.0


def test_guesses_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Guesses()
    for _ in range(FREE):
        known.note("a")
    monkeypatch.setattr(guesses, "FORGET_AFTER", -1.0)

    assert known.note("a") == 0.0


def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "MAX_ADDRESSES", 3)
    known = Guesses()

    for number in range(10):
        known.note(str(number))

    assert len(known) == 3


async def test_only_so_many_answers_are_delayed_at_a_time() -> None:
    known = Guesses(first=1000.0)
    for _ in range(FREE):
        await known.slow_down("192.0.2.1")
    delayed = [asyncio.create_task(known.slow_down("192.0.2.1")) for _ in range(MAX_DELAYED_EACH)]
    await asyncio.sleep(0)

    with pytest.raises(TooManyGuesses):
        await known.slow_down("192.0.2.1")

    await asyncio.wait_for(known.slow_down("192.0.2.2"), 1)
    for task in delayed:
        task.cancel()
    await asyncio.gather(*delayed, return_exceptions=True)
    assert not known._delayed


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_counts_as_one_client(address: str, source: str) -> None:
    assert source_of(address) == source
