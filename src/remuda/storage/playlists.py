"""Playlists that grow while they are watched, and must end with who wrote them. All of this blocks.

Whoever is killed while it writes leaves one that says nothing about its end, so players would wait for more
for ever.
"""

import os
from pathlib import Path

END = "#EXT-X-ENDLIST"
"""RFC 8216, 4.3.3.4: nothing will be added any more."""


def is_over(playlist: str) -> bool:
    """Whether nothing will be added to the playlist any more."""
    return END in playlist


def end_playlist(path: Path) -> bool:
    """Has the playlist say that it is over; whether it had to be told."""
    text, times = path.read_text(), path.stat()
    # One that only names others neither grows nor ends.
    if is_over(text) or "#EXT-X-STREAM-INF" in text:
        return False
    replace_file(path, text.rstrip("\n") + f"\n{END}\n")
    # It is no younger for it: what is old shall be evicted.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return True


def end_playlists(directory: Path) -> bool:
    """Does so with all of a session's playlists; whether one had to be told."""
    found = [path for path in directory.glob("*.m3u8") if path.is_file() and not path.is_symlink()]
    return sum(end_playlist(path) for path in found) > 0


def replace_file(path: Path, text: str) -> None:
    """Writes a file that others read meanwhile: they see the old or the new, never half of it."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.replace(path)
