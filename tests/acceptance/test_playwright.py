"""A stock Playwright client takes a browser from the same port, over Selenium's way to DevTools."""

import subprocess
import sys
from pathlib import Path

from herds import Herd
from readme import snippet_with


def test_the_playwright_snippet_of_the_readme_works_as_it_stands(herd: Herd, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippet_with("playwright").replace("http://127.0.0.1:4444", herd.url))

    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, check=False
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout == "Hello from the herd\n"
