"""Writes the reference pages, each generated from the declarations that it describes."""

from collections.abc import Callable, Mapping
from pathlib import Path

from remuda.cli.pages import render_commands, render_errors, render_options
from remuda.cli.rooms import ROOMS
from remuda.keyspace.page import render_page
from remuda.ops.exporter import all_metrics
from remuda.ops.exporter import render_page as render_metrics

REFERENCE = Path(__file__).resolve().parent.parent / "docs/reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": render_commands,
    "config.md": render_options,
    "errors.md": render_errors,
    "keys.md": render_page,
    "metrics.md": lambda: render_metrics(all_metrics(ROOMS)),
}


def main() -> None:
    """Write every page; a page that is up to date keeps its time of change."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        page, text = REFERENCE / name, render()
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
            print(f"wrote {page.relative_to(REFERENCE.parent.parent)}")


if __name__ == "__main__":
    main()
