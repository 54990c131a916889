"""What Utapi 8.1.16 wrote to Redis and answered, recorded by running it: data to compare with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.store import Store

_DIRECTORY = Path(__file__).parent / "golden"
GOLDEN: Any = json.loads((_DIRECTORY / "utapi-golden.json").read_text())
HTTP_GOLDEN: Any = json.loads((_DIRECTORY / "utapi-http-golden.json").read_text())
SCENARIOS: Mapping[str, Any] = {each["name"]: each for each in GOLDEN["scenarios"]}
STORY: Any = SCENARIOS["story"]

OURS = "remuda:"


async def read_keyspace(store: Store, *, own: bool = False) -> dict[str, Any]:
    """Every key that Utapi has too, with its value: a string, or a list of value and score."""
    found: dict[str, Any] = {}
    for key in await store.send("KEYS", "*"):
        if key.startswith(OURS) and not own:
            continue
        kind = await store.send("TYPE", key)
        if kind == "string":
            found[key] = await store.send("GET", key)
        elif kind == "zset":
            found[key] = points(await store.send("ZRANGE", key, 0, -1, "WITHSCORES"))
        elif kind == "list":
            found[key] = await store.send("LRANGE", key, 0, -1)
    return found


def points(pairs: Any) -> list[tuple[str, int]]:
    """Value and time slot of each point. The second half of a member is a random id at Utapi."""
    return [(member.partition(":")[0], int(float(score))) for member, score in pairs]


def plain(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded keyspace in the form of `read_keyspace`."""
    found: dict[str, Any] = {}
    for key, value in recorded.items():
        content = value["value"] if isinstance(value, dict) else value
        found[key] = points(content) if isinstance(content, list) and "utapireplay" not in key else content
    return found


async def load_keyspace(store: Store, recorded: Mapping[str, Any]) -> None:
    """Writes a recorded keyspace to Redis."""
    for key, value in recorded.items():
        content = value["value"] if isinstance(value, dict) else value
        if isinstance(content, str):
            await store.send("SET", key, content)
        elif "utapireplay" in key:
            await store.send("RPUSH", key, *content)
        else:
            for member, score in content:
                await store.send("ZADD", key, score, member)
