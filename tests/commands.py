"""The command line in this process: what a command does, without the time that its imports take."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from remuda.cli.main import main


def run_command(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The exit status of `remuda` and what it has printed, as if it had been a process. One at a time."""
    status: str | int | None = 0
    with (
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
        patch.object(sys, "argv", ["remuda", *args]),
        patch.dict(os.environ, {"COLUMNS": "160", **environ}),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code
        if isinstance(status, str):  # Python prints it and exits with 1.
            stderr.write(f"{status}\n")
            status = 1
    return subprocess.CompletedProcess(args, status or 0, stdout.getvalue(), stderr.getvalue())
