"""That the tests of a group run in one process: else what they share is started in each of them."""

import pytest


@pytest.mark.xdist_group("kept together")
def test_tests_of_a_group_are_kept_together(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not distributed by groups here")

    # pytest-xdist knows groups by this suffix, and pytest 9.2 drops it without a word.
    assert request.node.nodeid.endswith("@kept together")
