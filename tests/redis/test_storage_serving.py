"""Artifacts over HTTP, from a real role: whole and in parts, to any page, and nothing else."""

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from credentials import herd_headers
from remuda.base.ids import new_id
from remuda.fleet.relay.address import Address
from remuda.storage import serving
from remuda.storage.role import Storage
from remuda.store import Store
from storages import asking, fresh_session, indexed, running_storage, url_of, write_file
from waiting import eventually

SESSION = fresh_session()
BODY = bytes(range(256)) * 4000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a recording of a megabyte in it."""
    write_file(tmp_path, SESSION, "video.mp4", BODY)
    return tmp_path


async def test_an_artifact_is_sent_whole(store: Store, directory: Path) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4") as answer,
    ):
        assert answer.status == 200
        assert await answer.read() == BODY
        assert answer.headers["Content-Type"] == "video/mp4"
        assert answer.headers["Content-Length"] == str(len(BODY))
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=300000-700000", 300_000, 700_001), ("bytes=-5", len(BODY) - 5, len(BODY))],
)
async def test_a_part_is_sent(store: Store, directory: Path, wanted: str, start: int, stop: int) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4", range=wanted) as answer,
    ):
        assert answer.status == 206
        assert await answer.read() == BODY[start:stop]
        assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(BODY)}"


async def test_a_part_that_is_not_there_is_refused(store: Store, directory: Path) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4", range=f"bytes={len(BODY)}-") as answer,
    ):
        assert answer.status == 416
        assert answer.headers["Content-Range"] == f"bytes */{len(BODY)}"
        assert await answer.read() == b""


async def test_what_a_client_has_already_is_not_sent_again(store: Store, directory: Path) -> None:
    path = f"{SESSION}/video.mp4"
    async with running_storage(store, directory) as storage:
        async with asking(storage, path, method="HEAD") as head:
            tag, date = head.headers["ETag"], head.headers["Last-Modified"]

        for condition in ({"if_none_match": tag}, {"if_modified_since": date}):
            async with asking(storage, path, **condition) as answer:
                assert answer.status == 304
                assert answer.headers["ETag"] == tag
        (directory / path).write_bytes(b"changed")
        async with asking(storage, path, if_none_match=tag) as answer:
            assert (answer.status, await answer.read()) == (200, b"changed")
        async with asking(storage, path, range="bytes=0-1", if_range=tag) as answer:
            assert (answer.status, await answer.read()) == (200, b"changed")


async def test_a_head_tells_the_size_and_sends_nothing(store: Store, directory: Path) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4", method="HEAD") as answer,
    ):
        assert answer.status == 200
        assert answer.headers["Content-Length"] == str(len(BODY))
        assert await answer.read() == b""


async def test_an_empty_file_is_one_too(store: Store, directory: Path) -> None:
    write_file(directory, SESSION, "empty.log", b"")

    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/empty.log") as answer,
    ):
        assert (answer.status, await answer.read()) == (200, b"")


async def test_any_page_may_embed_an_artifact(store: Store, directory: Path) -> None:
    async with running_storage(store, directory) as storage:
        async with asking(storage, f"{SESSION}/video.mp4", origin="https://player.example") as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            assert "Content-Range" in answer.headers["Access-Control-Expose-Headers"]

        async with asking(
            storage,
            f"{SESSION}/video.mp4",
            method="OPTIONS",
            origin="https://player.example",
            access_control_request_method="GET",
            access_control_request_headers="range",
        ) as preflight:
            assert preflight.status == 204
            assert "GET" in preflight.headers["Access-Control-Allow-Methods"]
            assert "range" in preflight.headers["Access-Control-Allow-Headers"]


async def test_what_a_browser_downloaded_is_saved_and_not_run(store: Store, directory: Path) -> None:
    write_file(directory, SESSION, "Übel & böse.html", b"<script>alert(1)</script>")

    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/%C3%9Cbel%20%26%20b%C3%B6se.html") as answer,
    ):
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''%C3%9Cbel")


async def test_a_session_is_listed(store: Store, directory: Path) -> None:
    write_file(directory, SESSION, "a b.log", b"12345")
    (directory / SESSION / ".hidden").touch()

    async with running_storage(store, directory) as storage, asking(storage, f"{SESSION}/") as answer:
        listed: dict[str, Any] = await answer.json()
        assert (listed["storage"], listed["session"]) == (storage.storage_id, SESSION)
        assert [(file["name"], file["size"]) for file in listed["files"]] == [
            ("a b.log", 5),
            ("video.mp4", len(BODY)),
        ]
        async with asking(storage, listed["files"][0]["path"].split("/", 3)[3]) as file:
            assert await file.read() == b"12345"


HOSTILE = [
    "../.remuda-storage",
    "%2e%2e/.remuda-storage",
    ".remuda-storage",
    ".remuda-index.sqlite3",
    f"{SESSION}/../.remuda-storage",
    f"{SESSION}/..%2f.remuda-storage",
    f"{SESSION}/%2e%2e%2f.remuda-storage",
    f"{SESSION}/%2fetc%2fpasswd",
    f"{SESSION}//etc/passwd",
    f"{SESSION}/.hidden",
    f"{SESSION}/link",
    f"{SESSION}/missing.log",
    f"{SESSION}/video.mp4%00",
    f"{SESSION}/video.mp4/",
    f"{SESSION}/%ff",
    f"{new_id()}/",
    f"{new_id()}/video.mp4",
    "",
]


async def test_nothing_else_can_be_read(store: Store, directory: Path) -> None:
    (directory / SESSION / ".hidden").write_text("hidden")
    (directory / SESSION / "link").symlink_to("/etc/passwd")

    async with running_storage(store, directory) as storage:
        for path in HOSTILE:
            # Written by hand: a client library would tidy the path up first.
            status = await ask_verbatim(storage, f"/storage/{storage.storage_id}/{path}")
            assert status == 404, path
        assert await ask_verbatim(storage, f"/storage/{new_id()}/{SESSION}/video.mp4") == 404
        assert await ask_verbatim(storage, f"/storage/{storage.storage_id}/{SESSION}/video.mp4") == 200


async def ask_verbatim(storage: Storage, target: str) -> int:
    """The status of the answer to exactly this target."""
    host, _, port = storage.address.rpartition(":")
    address = Address(host, int(port))
    reader, writer = await asyncio.open_connection(*address[:2])
    headers = {"Host": str(address), "Connection": "close", **await herd_headers(storage._store)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_artifacts_are_only_read(store: Store, directory: Path, method: str) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4", method=method) as answer,
    ):
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert (directory / SESSION / "video.mp4").exists()


async def test_reading_is_noted_as_the_last_access(
    store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.storage.role.FLUSH_EVERY", 0.01)
    async with running_storage(store, directory) as storage:
        (before,) = await indexed(directory, SESSION)
        assert before.accessed == before.modified

        async with asking(storage, f"{SESSION}/video.mp4", range="bytes=0-9"):
            await eventually(lambda: is_accessed_after(directory, before.accessed))


async def is_accessed_after(directory: Path, moment: float) -> bool:
    (artifact,) = await indexed(directory, SESSION)
    return artifact.accessed > moment + 1


async def test_reading_just_before_the_end_is_noted_too(store: Store, directory: Path) -> None:
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/video.mp4") as answer,
    ):
        await answer.read()

    (artifact,) = await indexed(directory, SESSION)
    assert artifact.accessed > artifact.modified


async def test_a_large_file_is_never_in_memory_as_a_whole(
    store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sparse, and larger than any test machine would like to hold.
    with (directory / SESSION / "huge.mp4").open("wb") as stream:
        stream.truncate(1 << 40)
    read = 0
    pread = os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal read
        read += size
        return pread(descriptor, size, offset)

    monkeypatch.setattr("remuda.storage.directory.os.pread", count)
    async with (
        running_storage(store, directory) as storage,
        aiohttp.ClientSession(headers=await herd_headers(store)) as client,
    ):
        async with client.get(url_of(storage, f"{SESSION}/huge.mp4")) as answer:
            assert answer.headers["Content-Length"] == str(1 << 40)
            assert await answer.content.readexactly(10) == bytes(10)
            # The client takes no more, so no more is read than fits into the buffers between.
            assert read < 64 * 1024 * 1024
        async with client.get(
            url_of(storage, f"{SESSION}/huge.mp4"), headers={"Range": f"bytes={(1 << 40) - 3}-"}
        ) as answer:
            assert await answer.read() == bytes(3)


async def test_a_file_that_shrinks_while_it_is_read_breaks_the_connection(
    store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CHUNK", 1024)
    path = directory / SESSION / "shrinking.mp4"
    path.write_bytes(bytes(1 << 24))
    async with (
        running_storage(store, directory) as storage,
        asking(storage, f"{SESSION}/shrinking.mp4") as answer,
    ):
        await answer.content.readexactly(1024)
        os.truncate(path, 1024)

        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
