"""What a storage holds is on the meter of its account: exactly, whatever is killed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from remuda.base.errors import StoreUnavailable
from remuda.keyspace.metering import METER_COUNTER
from remuda.keyspace.storage import STORAGE_METERED
from remuda.metering.model import Services
from remuda.metering.push import Metering
from remuda.storage.index import Librarian
from remuda.storage.meter import ArtifactMeter
from remuda.storage.model import Artifact, ArtifactPath, Owner, StorageId
from remuda.storage.owners import OwnerKinds
from remuda.storage.usage import ARTIFACTS
from remuda.store import Store
from storages import JobArtifacts

STORAGE = StorageId("s1")
JOB, OTHER = Owner("job", "j1"), Owner("job", "j2")


@pytest.fixture
def kinds() -> OwnerKinds:
    jobs = JobArtifacts()
    jobs.accounts.update({"j1": "ranch", "j2": "farm"})
    return OwnerKinds([jobs])


@pytest.fixture
async def metering(store: Store) -> Metering:
    return Metering(store, services=Services([ARTIFACTS]))


@pytest.fixture
async def librarian(tmp_path: Path) -> AsyncIterator[Librarian]:
    async with opened(tmp_path) as librarian:
        yield librarian


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Librarian]:
    librarian = Librarian(directory)
    await librarian.start()
    await librarian.ask(lambda index: index.declare_complete())
    yield librarian
    await librarian.stop()


@pytest.fixture
def meter(store: Store, metering: Metering, kinds: OwnerKinds, librarian: Librarian) -> ArtifactMeter:
    return ArtifactMeter(store, STORAGE, metering, kinds=kinds, librarian=librarian)


async def record(librarian: Librarian, owner: Owner, **sizes: int) -> None:
    artifacts = [Artifact(ArtifactPath(owner, name), size, 1.0, 1.0) for name, size in sizes.items()]
    await librarian.ask(lambda index: index.record(artifacts))


async def held(store: Store, account: str) -> tuple[int, int]:
    """Bytes and artifacts on the meter of an account."""
    states = ("storageUtilized", "numberOfObjects")
    bytes_, objects = [
        int(await store.get(METER_COUNTER("artifacts", "accounts", account, state)) or 0) for state in states
    ]
    return bytes_, objects


async def test_artifacts_count_for_their_account_until_they_are_deleted(
    store: Store, meter: ArtifactMeter, librarian: Librarian
) -> None:
    await record(librarian, JOB, a=10, b=5)
    await record(librarian, OTHER, c=7)
    await meter.settle()

    assert await held(store, "ranch") == (15, 2)
    assert await held(store, "farm") == (7, 1)

    await record(librarian, JOB, a=4)
    await meter.settle()

    assert await held(store, "ranch") == (9, 2)

    await librarian.ask(lambda index: index.forget_owner(JOB))
    await meter.settle()

    assert await held(store, "ranch") == (0, 0)
    assert list(await store.hgetall(STORAGE_METERED(STORAGE))) == ["job_j2"]


async def test_what_is_there_already_is_counted_once_however_often_a_storage_starts(
    store: Store, metering: Metering, kinds: OwnerKinds, librarian: Librarian
) -> None:
    await record(librarian, JOB, a=10)

    for _ in range(3):
        await ArtifactMeter(store, STORAGE, metering, kinds=kinds, librarian=librarian).settle()

    assert await held(store, "ranch") == (10, 1)


async def test_what_went_while_nothing_was_metered_is_taken_off(
    store: Store, metering: Metering, kinds: OwnerKinds, meter: ArtifactMeter, librarian: Librarian
) -> None:
    await record(librarian, JOB, a=10)
    await meter.settle()
    await librarian.ask(lambda index: index.forget_owner(JOB))
    await librarian.ask(lambda index: index.take_changes())

    await ArtifactMeter(store, STORAGE, metering, kinds=kinds, librarian=librarian).settle()

    assert await held(store, "ranch") == (0, 0)


@pytest.mark.parametrize("is_pushed", [False, True], ids=["before the push", "after the push"])
async def test_a_storage_that_is_killed_loses_and_doubles_nothing(
    store: Store,
    metering: Metering,
    kinds: OwnerKinds,
    meter: ArtifactMeter,
    librarian: Librarian,
    is_pushed: bool,
) -> None:
    await record(librarian, JOB, a=10)
    push_all = metering.push_all

    async def die(events: object) -> None:
        if is_pushed:
            await push_all(events)  # type: ignore[arg-type]
        raise StoreUnavailable

    with mock.patch.object(metering, "push_all", side_effect=die), pytest.raises(StoreUnavailable):
        await meter.settle()
    # More has come by the time the next process looks.
    await record(librarian, JOB, b=3)
    await ArtifactMeter(store, STORAGE, metering, kinds=kinds, librarian=librarian).settle()

    assert await held(store, "ranch") == (13, 2)


async def test_an_index_that_is_being_rebuilt_takes_nothing_off(
    store: Store, metering: Metering, kinds: OwnerKinds, meter: ArtifactMeter, librarian: Librarian
) -> None:
    await record(librarian, JOB, a=10, b=5)
    await meter.settle()

    await librarian.ask(lambda index: index.start_anew())
    await record(librarian, JOB, a=10)
    await meter.settle()

    assert await held(store, "ranch") == (15, 2)

    await librarian.ask(lambda index: index.declare_complete())
    await meter.settle()

    assert await held(store, "ranch") == (10, 1)


async def test_artifacts_of_an_owner_that_no_room_knows_count_for_the_service_only(
    store: Store, meter: ArtifactMeter, librarian: Librarian
) -> None:
    await record(librarian, Owner("job", "j9"), a=10)
    await meter.settle()

    assert await store.get(METER_COUNTER("artifacts", "service", "artifacts", "storageUtilized")) == "10"


async def test_what_a_lost_storage_held_is_taken_off(
    store: Store, meter: ArtifactMeter, librarian: Librarian
) -> None:
    await record(librarian, JOB, a=10)
    await record(librarian, OTHER, c=7)
    await meter.settle()

    await meter.forget()

    assert await held(store, "ranch") == (0, 0)
    assert not await store.exists(STORAGE_METERED(STORAGE))
