"""Clients that are programs of their own, and what they print."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from herds import DEADLINE

NODE = Path(__file__).parent / "acceptance/node"
# Generous: the first client of a browser waits for it to start, and the machine may be busy.
PATIENCE = 2 * DEADLINE


def output_of(command: Sequence[str | Path], **environ: str) -> str:
    """What a client prints."""
    ended = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
