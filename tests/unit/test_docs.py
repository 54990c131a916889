"""The reference pages say what the declarations say, and the proofs name tests that exist."""

import ast
import re
from pathlib import Path

import pytest
from tools.make_docs import PAGES, REFERENCE

ROOT = REFERENCE.parent.parent
PROOFS = (ROOT / "docs/proofs.md").read_text()
NAMED = re.compile(r"`(tests/[a-z_/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), f"{name} is stale: run `make docs`"


def test_every_test_that_a_proof_names_exists() -> None:
    named = set(NAMED.findall(PROOFS))
    missing = [f"{file}::{test}" for file, test in sorted(named) if test not in defined_in(ROOT / file)]

    assert missing == []


def test_every_row_of_the_proofs_names_a_test() -> None:
    rows = [line for line in PROOFS.splitlines() if re.match(r"\| (?!what|\| what)", line)]
    unproven = [row for row in rows if not NAMED.search(row.rsplit(" | ", 1)[-1])]

    assert len(rows) > 60
    assert unproven == []


def test_until_there_is_a_release_nobody_is_told_to_install_it() -> None:
    releases = re.findall(r"^## [\d.]+ \((?!unreleased)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("deploy/**/*"),
    ]
    of_an_index = re.compile(r"pip install( -\S+)* remuda\b|remuda\[\w+\]")

    told = [page.name for page in pages if page.is_file() and of_an_index.search(page.read_text())]

    assert told == [] or releases


def defined_in(file: Path) -> set[str]:
    """The names of the functions in a file; none if there is no such file."""
    if not file.exists():
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions)}
