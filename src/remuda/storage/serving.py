"""Artifacts over HTTP, in parts if wanted: `GET /storage/{storage}/{owner}/{name}` to clients of the owner's
account and to operators, `GET /shared/{share}/{storage}/{owner}/{name}` to anybody while the share is good.

What belongs to another account is answered as what is not there. Where no token is needed, everybody is an
operator: then whoever knows the two ids in a URL may read what it names, also from any web page, as in the
original. Nothing that a browser fetched for a client runs in our name: what is not known to be harmless is
only ever saved, and the rest is shown in a sandbox.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from remuda.accounts.shares import Shares
from remuda.base import clock
from remuda.base.errors import (
    Broken,
    InvalidArgument,
    Lost,
    RemudaError,
    Unavailable,
    UnknownMethod,
)
from remuda.base.ids import is_uuid
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin
from remuda.fleet.route import check_scope, origin_of
from remuda.storage.directory import LocalDirectory, OpenFile, no_artifact, no_artifacts
from remuda.storage.model import ArtifactPath, Owner, StorageId, is_name
from remuda.storage.owners import OwnerKinds
from remuda.storage.ranges import ByteSpan, Version, decide

log = get_logger(__name__)

CHUNK = 256 * 1024
MOST_ACCESSES = 10_000
METHODS = "GET, HEAD, OPTIONS"
SAVED = "application/octet-stream"

CONTENT_TYPES: Mapping[str, str] = {
    ".m3u8": "application/vnd.apple.mpegurl",
    ".m4s": "video/mp4",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".vtt": "text/vtt; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".warc": "application/warc",
    ".warc.gz": "application/warc",
}
"""The end of a name -> its type. What is missing here is sent as bytes to save."""

_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Accept-Ranges, Content-Length, Content-Range, ETag, Last-Modified",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Content-Type-Options": "nosniff",
}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": "range, if-range, if-none-match, if-modified-since",
    "Access-Control-Max-Age": "86400",
}
_SANDBOX = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"


class ArtifactTarget(NamedTuple):
    """What a path asks for: an artifact, or without a name the list of an owner's."""

    storage: StorageId
    owner: Owner
    name: str
    share: str | None = None
    """What says that anybody may read it, where the path is a shared one."""


def parse_target(raw_path: bytes) -> ArtifactTarget:
    """What the path of a request, as it came on the wire, asks for; Lost when it can name nothing here."""
    # Cut before it is decoded: an encoded slash is part of a name, and no name has one.
    try:
        parts = [unquote_to_bytes(part).decode() for part in raw_path.split(b"/")]
    except UnicodeDecodeError:
        raise Lost("There is no such artifact") from None
    share = None
    if parts[:2] == ["", "shared"] and len(parts) == 6:
        share = parts.pop(2)
    elif parts[:2] != ["", "storage"]:
        raise Lost("There is no such artifact")
    if len(parts) == 4:
        parts.append("")
    if len(parts) != 5:
        raise Lost("There is no such artifact")
    storage, owner, name = parts[2:]
    if not is_uuid(storage) or (name and not is_name(name)):
        raise Lost("There is no such artifact")
    try:
        return ArtifactTarget(StorageId(storage), Owner.parse(owner), name, share)
    except InvalidArgument:
        raise Lost("There is no such artifact") from None


def content_type(name: str) -> str:
    """The type that a file of this name is sent as."""
    lower = name.lower()
    return next((kind for end, kind in CONTENT_TYPES.items() if lower.endswith(end)), SAVED)


class Serving:
    """The ASGI application of one storage; it notes which artifacts are read."""

    def __init__(
        self, storage: StorageId, directory: LocalDirectory, *, kinds: OwnerKinds, shares: Shares
    ) -> None:
        self._storage = storage
        self._kinds = kinds
        self._shares = shares
        self._directory = directory
        self._accesses: dict[ArtifactPath, float] = {}

    def take_accesses(self) -> dict[ArtifactPath, float]:
        """When artifacts were read since the last time."""
        accesses, self._accesses = self._accesses, {}
        return accesses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            response = await self._respond(request)
        except RemudaError as error:
            response = _answer_error(error)
        except OSError as error:
            log.error("artifact unreadable", storage=self._storage, reason=str(error))
            response = _answer_error(Unavailable(f"The artifact cannot be read: {error.strerror}"))
        except Exception:
            log.exception("request failed", storage=self._storage)
            response = _answer_error(Broken())
        response.headers.update(_CORS)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        target = parse_target(request.scope["raw_path"])
        if target.storage != self._storage:
            raise Lost(f"Storage {target.storage} is not here")
        if target.owner not in self._kinds:
            raise Lost("There is no such artifact")
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_PREFLIGHT)
        if request.method not in ("GET", "HEAD"):
            raise UnknownMethod(f"Artifacts take {METHODS}, not {request.method}.")
        if target.share is not None:
            self._shares.check(target.share, target.storage, str(target.owner), target.name)
        else:
            await self._check(origin_of(request), target)
        if not target.name:
            return await self._list(target.owner)
        return await self._send(request, ArtifactPath(target.owner, target.name))

    async def _check(self, origin: Origin, target: ArtifactTarget) -> None:
        """Raises what the client is answered if it may not read this."""
        owner, kind = target.owner, self._kinds[target.owner]
        check_scope(origin, [kind.scope])
        if origin.limited_to is None:
            return
        account = await asyncio.to_thread(self._directory.account_of, owner)
        if account is None:  # Of a time before accounts: its room may still know.
            account = await kind.account_of(owner.id)
        if account != origin.limited_to:
            path = ArtifactPath(owner, target.name)
            raise Lost(no_artifact(path) if target.name else no_artifacts(owner))

    async def _list(self, owner: Owner) -> Response:
        artifacts = await asyncio.to_thread(self._directory.list_owner, owner)
        files = [
            {
                "name": artifact.path.name,
                "path": f"/storage/{self._storage}/{owner}/{quote(artifact.path.name, safe='')}",
                "size": artifact.size,
                "last_modified": clock.rfc3339(artifact.modified),
                "content_type": content_type(artifact.path.name),
            }
            for artifact in artifacts
        ]
        return _json({"storage": self._storage, owner.kind: owner.id, "files": files})

    async def _send(self, request: Request, path: ArtifactPath) -> Response:
        file = await asyncio.to_thread(self._directory.open, path)
        version = Version(file.etag, file.modified, file.size)
        outcome = decide(request.method, request.headers, version)
        status, span = outcome
        headers = _headers(path.name) | outcome.headers(version)
        if status in (200, 206):
            if path in self._accesses or len(self._accesses) < MOST_ACCESSES:
                self._accesses[path] = clock.now()
            headers["Content-Length"] = str(span.size)
        if request.method == "GET" and span.size:
            return StreamingResponse(_read(file, span), status, headers)
        file.close()
        return Response(status_code=status, headers=headers)


def _headers(name: str) -> dict[str, str]:
    kind = content_type(name)
    disposition = "attachment" if kind == SAVED else "inline"
    return {
        "Content-Type": kind,
        # RFC 6266: the name of a download may be any text.
        "Content-Disposition": f"{disposition}; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": _SANDBOX,
        # A recording grows while it is watched, so it is asked for again, which mostly costs a 304.
        "Cache-Control": "no-cache",
    }


async def _read(file: OpenFile, span: ByteSpan) -> AsyncIterator[bytes]:
    try:
        at = span.start
        while at < span.stop:
            chunk = await asyncio.to_thread(file.read, at, min(CHUNK, span.stop - at))
            if not chunk:  # Cut short under our hands; only a broken connection can still tell the client.
                raise Lost("The artifact was truncated while it was read")
            at += len(chunk)
            yield chunk
    finally:
        file.close()


def _answer_error(error: RemudaError) -> Response:
    response = _json(error.api_face(), status=error.status)
    response.headers.update(error.headers())
    if isinstance(error, UnknownMethod):  # RFC 9110 15.5.6: a 405 says what is allowed.
        response.headers["Allow"] = METHODS
    return response


def _json(body: object, *, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(body),
        status,
        headers={"Cache-Control": "no-cache"},
        media_type="application/json; charset=utf-8",
    )
