"""How a day of a resource is kept: for each operation, measure and state the numbers of all time slots. Pure.

There are two forms. Scripts in Redis write the *open* form, MessagePack, while the day goes on. A day that is
over is *packed*: each column in as few bytes a number as its greatest one needs, and all of it deflated. Both
name the columns, so an operation that is added later changes nothing. A column's length says how long
its time slots are.
"""

import zlib
from array import array
from collections.abc import Mapping

import msgspec

from remuda.base.errors import Broken

DAY_MS = 86_400_000
PACKED = b"\xc1"
"""The first byte of a packed day: the only one that MessagePack never begins with."""

Day = dict[str, list[int]]
"""Column -> its number in each time slot."""

_WIDTHS = "bhiq"
_LIMITS = {"b": 2**7, "h": 2**15, "i": 2**31, "q": 2**63}

_encode = msgspec.msgpack.Encoder().encode
_decode_open = msgspec.msgpack.Decoder(dict[str, list[int]]).decode
_decode_columns = msgspec.msgpack.Decoder(dict[str, bytes]).decode
decode_totals = msgspec.msgpack.Decoder(dict[str, int]).decode
"""The sums of a day, as scripts and `encode_totals` write them."""


def is_packed(blob: bytes) -> bool:
    """Whether the day is in the packed form."""
    return blob[:1] == PACKED


def pack(day: Day) -> bytes:
    """The packed form."""
    columns = {}
    for name, numbers in sorted(day.items()):
        low, high = min(numbers, default=0), max(numbers, default=0)
        if not low and not high:
            continue
        width = next(width for width in _WIDTHS if -_LIMITS[width] <= low and high < _LIMITS[width])
        columns[name] = width.encode() + array(width, numbers).tobytes()
    return PACKED + zlib.compress(_encode(columns), 9)


def encode_open(day: Day) -> bytes:
    """The open form."""
    return _encode(day)


def unpack(blob: bytes) -> Day:
    """The day in either form."""
    if not is_packed(blob):
        return _decode_open(blob)
    day = {}
    for name, column in _decode_columns(zlib.decompress(blob[1:])).items():
        numbers = array(chr(column[0]))
        if numbers.typecode not in _WIDTHS:
            raise Broken(f"A packed day has a column of type {column[0]}")
        numbers.frombytes(column[1:])
        day[name] = numbers.tolist()
    return day


def totals_of(day: Day) -> dict[str, int]:
    """The sum of each column."""
    return {name: total for name, numbers in day.items() if (total := sum(numbers))}


def encode_totals(totals: Mapping[str, int]) -> bytes:
    return _encode(totals)


def add(day: Day, name: str, offset_ms: int, by: int, *, slots: int) -> None:
    """Adds to the number of a time slot, which begins so long after midnight. `slots` is how many a day of
    the present precision has; if the day has finer ones already, they are kept."""
    slots = max(slots, *(len(numbers) for numbers in day.values()), 1)
    for other, numbers in list(day.items()):
        if len(numbers) < slots:
            day[other] = _spread(numbers, slots)
    column = day.setdefault(name, [0] * slots)
    column[offset_ms * slots // DAY_MS] += by


def _spread(numbers: list[int], slots: int) -> list[int]:
    """The same day in finer time slots: what was counted in a coarse one belongs to its first moment."""
    step = slots // len(numbers)
    finer = [0] * slots
    finer[::step] = numbers
    return finer
