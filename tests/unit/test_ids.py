"""Ids: random, and recognised only in the form that they are made in."""

import pytest

from remuda.base.ids import is_uuid, new_id


def test_every_new_id_is_another_uuid() -> None:
    made = {new_id() for _ in range(1000)}

    assert len(made) == 1000
    assert all(is_uuid(each) for each in made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "6F9619FF-8B86-D011-B42D-00CF4FC964FF",
        "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}",
        "6f9619ff8b86d011b42d00cf4fc964ff",
        "6f9619ff-8b86-d011-b42d-00cf4fc964ff\n",
        "6f9619ff-8b86-d011-b42d-00cf4fc964ff:log",
        "٦f9619ff-8b86-d011-b42d-00cf4fc964ff",
    ],
)
def test_other_text_is_no_uuid(text: str) -> None:
    assert not is_uuid(text)
