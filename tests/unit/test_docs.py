"""The reference pages say what the declarations say."""

import pytest
from tools.make_docs import PAGES, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), f"{name} is stale: run `make docs`"
