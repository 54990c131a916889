"""Whose artifacts are whose, and what a share opens: from a real storage, asked as a front door would."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from remuda.accounts.shares import Shares
from remuda.base import clock
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.secret import HerdSecret
from remuda.keyspace import grid
from remuda.storage.directory import LocalDirectory, keep_storage_id
from remuda.storage.index import FILE
from remuda.storage.model import Owner
from remuda.storage.role import Storage
from remuda.store import Store
from storages import JobArtifacts, asking, running_storage, session_writer, write_file
from web_states import SessionWriter

STRANGER = Origin(account="", address="10.0.0.9")
OWN = Origin(account="own", address="10.0.0.8", token="ci", scopes=frozenset({Scope.USE}))
OTHER = Origin(account="other", address="10.0.0.9", token="ci", scopes=frozenset({Scope.USE}))
ADMIN = Origin(account="ops", address="10.0.0.1", token="root", scopes=frozenset({Scope.ADMIN}))
ARCHIVIST = Origin(account="own", address="10.0.0.8", token="crawl", scopes=frozenset({Scope.ARCHIVE}))


async def record(store: Store, directory: Path) -> SessionId:
    """A session of the account `own` with a video, written as a node does."""
    session = await SessionWriter(store, "own").queue()
    writer = session_writer(store, keep_storage_id(directory), directory)
    await writer.open(session)
    write_file(directory, session, "video.mp4", b"0123456789")
    await writer.announce(session, "video.mp4")
    return session


async def answer_to(storage: Storage, path: str, asker: Origin) -> tuple[int, Mapping[str, str], bytes]:
    async with asking(storage, path, asker) as answer:
        headers = {name: value for name, value in answer.headers.items() if name != "date"}
        return answer.status, headers, await answer.read()


async def status_of(storage: Storage, path: str, asker: Origin) -> int:
    return (await answer_to(storage, path, asker))[0]


async def purge(store: Store, session: SessionId) -> None:
    """Redis knows the session no more, as a week after its end."""
    await store.delete(*(key(session) for key in grid.SESSION_KEYS))


async def test_its_account_and_operators_read_an_artifact_and_nobody_else(
    store: Store, tmp_path: Path
) -> None:
    session = await record(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        for path in (f"{session}/video.mp4", f"{session}/"):
            statuses = [
                await status_of(storage, path, asker) for asker in (OWN, ADMIN, OTHER, ARCHIVIST, STRANGER)
            ]

            assert statuses == [200, 200, 404, 403, 401]


async def test_anothers_artifact_is_answered_like_one_that_is_not_there(store: Store, tmp_path: Path) -> None:
    session, never = await record(store, tmp_path), new_id()
    async with running_storage(store, tmp_path) as storage:
        for name in ("video.mp4", "missing.mp4", ""):
            status, headers, body = await answer_to(storage, f"{session}/{name}", OTHER)
            missing = await answer_to(storage, f"{never}/{name}", OTHER)

            assert (status, headers, body.replace(session.encode(), never.encode())) == missing


async def test_artifacts_stay_their_accounts_when_redis_has_forgotten_the_session(
    store: Store, tmp_path: Path
) -> None:
    session = await record(store, tmp_path)
    await purge(store, session)
    async with running_storage(store, tmp_path) as storage:
        assert await status_of(storage, f"{session}/video.mp4", OWN) == 200
        assert await status_of(storage, f"{session}/video.mp4", OTHER) == 404


async def test_artifacts_stay_their_accounts_when_the_index_is_lost(store: Store, tmp_path: Path) -> None:
    session = await record(store, tmp_path)
    async with running_storage(store, tmp_path):
        pass
    await purge(store, session)
    for file in tmp_path.glob(f"{FILE}*"):
        file.unlink()

    async with running_storage(store, tmp_path) as storage:
        assert await status_of(storage, f"{session}/video.mp4", OWN) == 200
        assert await status_of(storage, f"{session}/video.mp4", OTHER) == 404


async def test_what_was_kept_before_there_were_accounts_is_found_out_from_the_session(
    store: Store, tmp_path: Path
) -> None:
    session = await SessionWriter(store, "own").queue()
    write_file(tmp_path, session, "video.mp4")
    async with running_storage(store, tmp_path) as storage:
        known = [await status_of(storage, f"{session}/video.mp4", asker) for asker in (OWN, OTHER)]
        await purge(store, session)
        forgotten = [await status_of(storage, f"{session}/video.mp4", asker) for asker in (OWN, ADMIN)]

    assert known == [200, 404]
    assert forgotten == [404, 200]


async def test_the_account_goes_with_the_artifacts(store: Store, tmp_path: Path) -> None:
    session = await record(store, tmp_path)
    directory = LocalDirectory(tmp_path)
    owner = Owner.parse(session)
    assert directory.account_of(owner) == "own"

    directory.remove_owner(owner)

    assert directory.account_of(owner) is None


def test_what_is_written_down_of_owners_that_are_gone_goes_with_a_scan(tmp_path: Path) -> None:
    directory, here, gone = LocalDirectory(tmp_path), Owner.parse(new_id()), Owner.parse(new_id())
    (tmp_path / str(here)).mkdir()
    for owner in (here, gone):
        directory.note_account(owner, "own")

    directory.remove_stray_accounts()

    assert (directory.account_of(here), directory.account_of(gone)) == ("own", None)
    assert directory.owners() == [here]


async def test_another_kind_of_owner_has_a_scope_of_its_own(store: Store, tmp_path: Path) -> None:
    class CrawlArtifacts(JobArtifacts):
        scope = Scope.ARCHIVE

    jobs = CrawlArtifacts()
    jobs.accounts["3kx0"] = "own"
    write_file(tmp_path, "job_3kx0", "site.warc.gz")
    async with running_storage(store, tmp_path, others=[jobs]) as storage:
        assert [await status_of(storage, "job_3kx0/site.warc.gz", each) for each in (ARCHIVIST, OWN)] == [
            200,
            403,
        ]


# Shares


async def share(store: Store, storage: Storage, session: SessionId, *names: str, seconds: float = 60) -> str:
    secret = HerdSecret(store)
    await secret.read()
    return Shares(secret).make(storage.storage_id, session, names, until=clock.now() + seconds)


async def test_a_share_is_read_without_a_token_in_parts_and_by_any_page(store: Store, tmp_path: Path) -> None:
    session = await record(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        path = await share(store, storage, session, "video.mp4")

        page = {"range": "bytes=2-4", "origin": "https://player.example"}
        async with asking(storage, path, STRANGER, **page) as answer:
            assert (answer.status, await answer.read()) == (206, b"234")
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
        async with asking(storage, path, STRANGER, method="OPTIONS") as preflight:
            assert preflight.status == 204


async def test_the_parts_of_a_shared_playlist_are_found_beside_it(store: Store, tmp_path: Path) -> None:
    session = await record(store, tmp_path)
    for name in ("video.m3u8", "stream.m3u8", "messages-00000.vtt", "other.txt"):
        write_file(tmp_path, session, name)
    async with running_storage(store, tmp_path) as storage:
        playlist = await share(
            store, storage, session, "video.m3u8", "stream.m3u8", "messages-/", "video.mp4"
        )
        beside = playlist.rpartition("/")[0]

        for name in ("video.m3u8", "stream.m3u8", "messages-00000.vtt", "video.mp4"):
            assert await status_of(storage, f"{beside}/{name}", STRANGER) == 200
        for name in ("other.txt", "", "missing.txt"):
            assert await status_of(storage, f"{beside}/{name}", STRANGER) == 404


@pytest.mark.parametrize("asker", [STRANGER, OWN], ids=["stranger", "own"])
async def test_a_share_that_is_over_or_forged_opens_nothing(
    store: Store, tmp_path: Path, asker: Origin
) -> None:
    session = await record(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        over = await share(store, storage, session, "video.mp4", seconds=-1)
        forged = (await share(store, storage, session, "other.mp4")).replace("other.mp4", "video.mp4")

        assert await status_of(storage, over, asker) == 404
        assert await status_of(storage, forged, asker) == 404


async def test_a_share_ends_with_its_artifact(store: Store, tmp_path: Path) -> None:
    session = await record(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        path = await share(store, storage, session, "video.mp4")
        before = await status_of(storage, path, STRANGER)
        LocalDirectory(tmp_path).remove_owner(Owner.parse(session))

        assert (before, await status_of(storage, path, STRANGER)) == (200, 404)
