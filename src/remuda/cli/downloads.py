"""Brings an artifact of a herd here: in pieces, so that it may have any size, and checked."""

import hashlib
import http.client
from pathlib import Path

from remuda.base.errors import Lost, Unavailable
from remuda.cli.front_door import HerdAddress

PIECE = 1 << 20
TIMEOUT = 60.0


def download(herd: HerdAddress, path: str, target: Path, *, sha256: str) -> Path:
    """The file, which is there whole or not at all. What is there already is not fetched again."""
    if target.is_file() and _digest(target) == sha256:
        return target
    draft = target.with_name(f".{target.name}.part")
    tls, address = herd.tls(), herd.address
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
        if tls is None
        else http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT, context=tls)
    )
    try:
        connection.request(
            "GET", path, headers={"Authorization": f"Bearer {herd.token}"} if herd.token else {}
        )
        response = connection.getresponse()
        if response.status != 200:
            raise Lost(f"{target.name} cannot be had: the herd answered {response.status}")
        digest = hashlib.sha256()
        # Anew: in a directory for all users, a file of this name may be a link of another's.
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:
            while piece := response.read(PIECE):
                file.write(piece)
                digest.update(piece)
        if digest.hexdigest() != sha256:
            raise Unavailable(f"{target.name} came damaged: its SHA-256 is not {sha256}")
        return draft.rename(target)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{target.name} cannot be brought to {target.parent}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
        connection.close()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
