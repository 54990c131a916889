"""The README, as its reader takes it: code to be pasted."""

import re
from pathlib import Path

_README = Path(__file__).parents[1] / "README.md"


def snippet_with(word: str) -> str:
    """The one Python snippet that imports this."""
    snippets = re.findall(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
    (snippet,) = [str(each) for each in snippets if f"from {word}" in each]
    return snippet
