"""What can be changed while everything runs: a hash of numbers in Redis, with defaults.

Settings are read at the moment of use, so a change needs no restart. A value that is no usable number is
reported and its default taken instead: a slip of the operator must not stop the herd.
"""

from collections.abc import Mapping

from remuda.base.errors import InvalidArgument
from remuda.base.log import get_logger
from remuda.keyspace.key import HashName
from remuda.store import Store

log = get_logger(__name__)


class Settings:
    """A hash of named, non-negative numbers."""

    def __init__(self, store: Store, key: HashName, *, defaults: Mapping[str, float]) -> None:
        self._store = store
        self._key = key
        self._defaults = dict(defaults)

    async def write_defaults(self) -> None:
        """Fills in what nobody has set, so that an operator finds every name with its value."""
        async with self._store.transaction() as transaction:
            for name, value in self._defaults.items():
                transaction.hsetnx(self._key, name, _text(value))

    async def read(self) -> dict[str, float]:
        """Every setting as it is now."""
        stored = await self._store.hgetall(self._key)
        return {name: self._usable(name, stored.get(name), value) for name, value in self._defaults.items()}

    def _usable(self, name: str, text: str | None, default: float) -> float:
        if text is None:
            return default
        try:
            return _number(text)
        except ValueError:
            log.warning("setting ignored", key=self._key, name=name, value=text, using=default)
            return default

    async def change(self, **values: float) -> None:
        """Sets some of the settings; InvalidArgument for an unknown name or a negative number."""
        for name, value in values.items():
            if name not in self._defaults:
                raise InvalidArgument(f"{self._key} has no setting {name!r}: {', '.join(self._defaults)}")
            try:
                _number(str(value))
            except ValueError:
                raise InvalidArgument(f"{name} must be a number of at least 0, not {value!r}") from None
        if values:
            await self._store.hset(self._key, {name: _text(value) for name, value in values.items()})


def _text(value: float) -> str:
    """The number as an operator would write it, and nothing rounded off."""
    return str(int(value)) if value == int(value) else repr(value)


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value
