"""What can be changed while everything runs: a hash in Redis whose fields have types and defaults.

Settings are read at the moment of use, so a change needs no restart. A value that does not fit its type is
reported and its default taken instead: a wrong entry must not stop the herd.
"""

import sys
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec.inspect import ListType, VarTupleType, type_info

from remuda.base.log import get_logger
from remuda.keyspace.key import HashName
from remuda.store import Store

log = get_logger(__name__)

S = TypeVar("S", bound=msgspec.Struct)

Seconds = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
"""A finite number of at least 0."""


class Settings(Generic[S]):
    """The fields of a Struct, each with a default, as a hash. In Redis a number or a string is written as it
    is, a boolean as `true` or `false`, and a list with commas between its items."""

    def __init__(self, store: Store, key: HashName, kind: type[S]) -> None:
        self._store = store
        self._key = key
        self._kind = kind
        self._defaults = kind()
        self._fields = msgspec.structs.fields(kind)
        self._lists = {
            field.name for field in self._fields if isinstance(type_info(field.type), ListType | VarTupleType)
        }

    async def write_defaults(self) -> None:
        """Fills in what is not set, so that an operator finds every name with its value."""
        async with self._store.transaction() as transaction:
            for field in self._fields:
                text = _text(getattr(self._defaults, field.name))
                transaction.hsetnx(self._key, field.encode_name, text)

    async def write(self, **values: Any) -> None:
        """Sets these fields, by their names in the Struct."""
        names = {field.name: field.encode_name for field in self._fields}
        await self._store.hset(self._key, {names[name]: _text(value) for name, value in values.items()})

    async def read(self) -> S:
        """Every setting as it is now."""
        stored = await self._store.hgetall(self._key)
        found = {}
        for field in self._fields:
            text = stored.get(field.encode_name)
            if text is None:
                continue
            try:
                given: str | list[str] = text.strip()
                if field.name in self._lists:
                    given = [item.strip() for item in text.split(",") if item.strip()]
                found[field.name] = msgspec.convert(given, field.type, strict=False)
            except msgspec.ValidationError as error:
                log.warning(
                    "setting ignored",
                    key=self._key,
                    name=field.encode_name,
                    value=text,
                    reason=str(error),
                    using=_text(getattr(self._defaults, field.name)),
                )
        return self._kind(**found)


def _text(value: Any) -> str:
    """The value as an operator would write it, and nothing rounded off."""
    match value:
        case bool():
            return str(value).lower()
        case float() if value == int(value):
            return str(int(value))
        case list() | tuple():
            return ",".join(map(_text, value))
    return str(value)
