"""Shares: what a signed path is good for, and for how long."""

import pytest

from remuda.accounts.shares import PREFIX, Shares
from remuda.base import clock
from remuda.base.errors import Lost
from remuda.base.ids import new_id
from remuda.fleet.secret import HerdSecret
from remuda.store import Store

STORAGE, OWNER = new_id(), new_id()


@pytest.fixture
async def shares() -> Shares:
    return Shares(HerdSecret(Store("redis://127.0.0.1:1")))


def parts_of(path: str) -> list[str]:
    """The share, the storage, the owner and the name that are in a path."""
    return path.removeprefix(PREFIX).split("/")


def share(shares: Shares, *names: str, seconds: float = 60.0) -> str:
    """The part of a path that shares these."""
    return parts_of(shares.make(STORAGE, OWNER, names, until=clock.now() + seconds))[0]


async def test_a_share_is_good_for_what_it_names(shares: Shares) -> None:
    shares.check(share(shares, "video.mp4"), STORAGE, OWNER, "video.mp4")


async def test_a_playlist_is_shared_with_its_parts_and_nothing_else(shares: Shares) -> None:
    made = share(shares, "video.m3u8", "stream.m3u8", "messages-/")

    for name in ("video.m3u8", "stream.m3u8", "messages-00001.vtt"):
        shares.check(made, STORAGE, OWNER, name)
    for name in ("video.mp4", "messages", "downloaded.txt", "messages.vtt", ""):
        with pytest.raises(Lost):
            shares.check(made, STORAGE, OWNER, name)


async def test_a_share_is_for_one_owner_in_one_storage(shares: Shares) -> None:
    made = share(shares, "video.mp4")

    for storage, owner in ((new_id(), OWNER), (STORAGE, new_id())):
        with pytest.raises(Lost):
            shares.check(made, storage, owner, "video.mp4")


async def test_a_share_that_has_expired_says_so(shares: Shares) -> None:
    with pytest.raises(Lost, match="has expired at"):
        shares.check(share(shares, "video.mp4", seconds=-1), STORAGE, OWNER, "video.mp4")


async def test_nothing_of_a_share_can_be_changed(shares: Shares) -> None:
    expiry, names, signature = share(shares, "a.log").split(".")
    _, others, _ = share(shares, "b.log").split(".")
    forged = [
        f"{int(expiry) + 1}.{names}.{signature}",
        f"{expiry}.{others}.{signature}",
        f"{expiry}.{names}.{'0' * 64}",
        f"{expiry}.{names}",
        f"{expiry}.{names}.{signature}.",
        "",
        "x" * 9000,
    ]

    for each in forged:
        for name in ("a.log", "b.log"):
            with pytest.raises(Lost, match="There is no such artifact"):
                shares.check(each, STORAGE, OWNER, name)


async def test_another_herd_has_not_signed_it(shares: Shares) -> None:
    stranger = Shares(HerdSecret(Store("redis://127.0.0.1:1")))

    with pytest.raises(Lost, match="There is no such artifact"):
        shares.check(share(stranger, "a.log"), STORAGE, OWNER, "a.log")


async def test_a_name_is_written_so_that_it_stays_one_part_of_the_path(shares: Shares) -> None:
    path = shares.make(STORAGE, OWNER, ["a b?#é.log"], until=clock.now() + 60)

    assert parts_of(path)[3] == "a%20b%3F%23%C3%A9.log"
