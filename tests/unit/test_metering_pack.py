"""Days are kept without loss in either form, and can be made finer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.metering import pack

NUMBERS = st.integers(-(2**53), 2**53) | st.integers(0, 100)
COLUMNS = st.dictionaries(
    st.sampled_from(["PutObject", "incomingBytes", "storageUtilized"]),
    st.dictionaries(st.integers(0, 95), NUMBERS, max_size=4),
)


@settings(max_examples=50)
@given(sparse=COLUMNS)
def test_a_day_survives_both_forms(sparse: dict[str, dict[int, int]]) -> None:
    day = {name: [numbers.get(slot, 0) for slot in range(96)] for name, numbers in sparse.items()}
    used = {name: numbers for name, numbers in day.items() if any(numbers)}

    assert pack.unpack(pack.pack(day)) == used
    assert pack.unpack(pack.encode_open(day)) == day
    assert pack.is_packed(pack.pack(day))
    assert not pack.is_packed(pack.encode_open(day))
    assert pack.decode_totals(pack.encode_totals(pack.totals_of(day))) == pack.totals_of(day)


def test_a_day_becomes_finer_and_never_coarser() -> None:
    day = {"PutObject": [7] + [0] * 95}

    pack.add(day, "GetObject", 16 * 60_000, 1, slots=1440)
    pack.add(day, "PutObject", 15 * 60_000, 2, slots=96)

    assert [(index, by) for index, by in enumerate(day["PutObject"]) if by] == [(0, 7), (15, 2)]
    assert [(index, by) for index, by in enumerate(day["GetObject"]) if by] == [(16, 1)]
