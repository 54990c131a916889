"""What several tests with processes of their own share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory like pytest's `tmp_path`, but with a path that is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="herd-") as directory:
        yield Path(directory)
