"""The files of the dashboard, held in memory. No other file can be reached."""

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from remuda.base.errors import Unauthorized, UnknownCommand

DIRECTORY = Path(__file__).parent / "static"

# Everything comes from here and nothing is inline, so that what a client calls its session stays a text.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    # What plays is put together from segments, hence a blob.
    "media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Vendored files carry their version in their name. Ours do not: they are asked for again each time, which
# costs an answer without a body, and an upgrade shows at once.
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"

_TYPES = {".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent."""

    body: bytes
    headers: dict[str, str]

    def answer(self, request: Request) -> Response:
        """The file, or word that the client has it already."""
        if request.headers.get("if-none-match") == self.headers["ETag"]:
            return Response(status_code=304, headers=self.headers)
        return Response(self.body, headers=self.headers)


class StaticFiles:
    """Every file of a directory, by its path in it."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._files = {
            path.relative_to(directory).as_posix(): _load(path)
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }

    def answer(self, name: str, request: Request) -> Response:
        """The answer to a request for a file; UnknownCommand when there is none of this name."""
        return self.find(name).answer(request)

    def find(self, name: str) -> StaticFile:
        """The file of this name; UnknownCommand when there is none."""
        file = self._files.get(name)
        if file is None:
            raise UnknownCommand(f"There is no file {name[:200]!r} here.")
        return file


@cache
def dashboard_files() -> StaticFiles:
    """The files of the dashboard, read once."""
    return StaticFiles()


def answer_login() -> Response:
    """The answer to a person without a token: a page that asks for it."""
    file = dashboard_files().find("login.html")
    headers = {
        **file.headers,
        **Unauthorized().headers(),
        "Cache-Control": "no-store",
    }
    del headers["ETag"]
    return Response(file.body, Unauthorized.status, headers)


def _load(path: Path) -> StaticFile:
    body = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    headers = {
        "Content-Type": f"{media_type}; charset=utf-8",
        "Cache-Control": FOR_EVER if path.parent.name == "vendor" else ASK_AGAIN,
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return StaticFile(body, headers)
