"""The pipelines of a herd, as they describe themselves, and which of them are to leave."""

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from msgspec import Struct

from remuda import __version__
from remuda.archive.model import PipelineKey
from remuda.base import clock
from remuda.base.errors import Lost
from remuda.base.ids import RoleId
from remuda.keyspace import archive
from remuda.keyspace.key import HashName
from remuda.store import Store, load_script

_ENLIST = load_script(__file__, "enlist.lua", keys=[archive.PIPELINES], args=["pipeline", "verb"])

_MEGABYTE = 1_000_000


def pipeline_key(role: RoleId) -> PipelineKey:
    """The key of the pipeline that is this role; it is also its documented id."""
    return PipelineKey(archive.PIPELINE(role.replace("-", "")))


@dataclass(frozen=True)
class PipelineMachine:
    """How a pipeline's machine is at one moment."""

    disk_usage: float
    disk_available: int
    mem_usage: float
    mem_available: int
    load: tuple[float, float, float]

    @classmethod
    def look(cls, directory: Path) -> "PipelineMachine":
        """The machine now; the disk is the directory's."""
        disk, memory = psutil.disk_usage(str(directory)), psutil.virtual_memory()
        return cls(disk.percent, disk.free, memory.percent, memory.available, os.getloadavg())

    def find_lack(self, *, disk_megabytes: int, memory_megabytes: int) -> str:
        """Why no job should begin here, in words; empty if one may."""
        if self.disk_available < disk_megabytes * _MEGABYTE:
            free = self.disk_available // _MEGABYTE
            return f"low disk space: {free} MB free, less than archive_min_free_megabytes ({disk_megabytes})"
        if self.mem_available < memory_megabytes * _MEGABYTE:
            free = self.mem_available // _MEGABYTE
            return f"low memory: {free} MB free, less than archive_min_memory_megabytes ({memory_megabytes})"
        return ""

    def fields(self) -> dict[str, str]:
        """The documented fields."""
        one, five, fifteen = (f"{load:.2f}" for load in self.load)
        return {
            "disk_usage": f"{self.disk_usage:.1f}",
            "disk_available": str(self.disk_available),
            "mem_usage": f"{self.mem_usage:.1f}",
            "mem_available": str(self.mem_available),
            "load_average_1m": one,
            "load_average_5m": five,
            "load_average_15m": fifteen,
        }


class PipelineView(Struct, rename="camel", kw_only=True):
    """A pipeline and its machine. `obstacle` says why it takes no jobs for now."""

    id: str
    nickname: str
    hostname: str
    pid: int
    version: str
    status: str
    obstacle: str
    jobs: int
    concurrent: int
    disk_usage: float
    disk_available: int
    mem_usage: float
    mem_available: int
    load_average_1m: float
    at: str


def identity_of(pipeline: PipelineKey, *, nickname: str) -> dict[str, str]:
    """The documented fields that stay the same. Blocks: a name server may be asked for the machine's name."""
    return {
        "id": pipeline,
        "nickname": nickname,
        "hostname": socket.gethostname().partition(".")[0],
        "fqdn": socket.getfqdn(),
        "pid": str(os.getpid()),
        "python": platform.python_version(),
        "version": __version__,
    }


class Pipelines:
    """The records of all pipelines."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def beat(self, pipeline: PipelineKey, fields: Mapping[str, str]) -> bool:
        """Writes the record of a pipeline; whether it is to leave."""
        key = _record(pipeline)
        async with self._store.transaction() as transaction:
            transaction.hset(key, {**fields, "ts": f"{clock.now():.3f}"})
            transaction.expire(key, archive.PIPELINE_TTL)
            is_leaving = transaction.sismember(archive.DRAINING_PIPELINES(), pipeline)
            transaction.publish(archive.PIPELINE_UPDATES(), pipeline)
        return bool(await is_leaving)

    async def enlist(self, pipeline: PipelineKey) -> None:
        """Adds a pipeline to the documented list."""
        await self._store.run(_ENLIST, keys=[archive.PIPELINES()], args=[pipeline, "add"])

    async def withdraw(self, pipeline: PipelineKey) -> None:
        """Removes a pipeline that has left or was killed."""
        await self._store.run(_ENLIST, keys=[archive.PIPELINES()], args=[pipeline, "remove"])
        async with self._store.transaction() as transaction:
            transaction.delete(_record(pipeline))
            transaction.srem(archive.DRAINING_PIPELINES(), pipeline)
            transaction.publish(archive.PIPELINE_UPDATES(), pipeline)

    async def listed(self) -> list[PipelineKey]:
        """The documented list, of which some may be gone."""
        return [
            PipelineKey(each)
            for each in await self._store.run(_ENLIST, keys=[archive.PIPELINES()], args=["", "show"])
        ]

    async def is_alive(self, pipeline: PipelineKey) -> bool:
        """Whether the pipeline has beaten within its time to live."""
        return bool(await self._store.exists(_record(pipeline)))

    async def alive(self) -> list[PipelineView]:
        """Those that beat, by nickname."""
        replies = [self._store.hgetall(_record(each)) for each in await self.listed()]
        views = [_view(record) for reply in replies if (record := await reply)]
        return sorted(views, key=lambda view: (view.nickname, view.id))

    async def drain(self, text: str, *, undo: bool = False) -> PipelineView:
        """Has a pipeline take no more jobs and leave after those it has; Lost if there is none of this id."""
        named = {text, archive.PIPELINE.template() % text}
        found = next((each for each in await self.alive() if each.id in named), None)
        if found is None:
            raise Lost(f"There is no pipeline {text[:100]!r}")
        change = self._store.srem if undo else self._store.sadd
        await change(archive.DRAINING_PIPELINES(), found.id)
        return found


def _record(pipeline: PipelineKey) -> HashName:
    return archive.PIPELINE(pipeline.partition(":")[2])


def _view(record: Mapping[str, str]) -> PipelineView:
    def number(field: str) -> float:
        try:
            return float(record.get(field, 0))
        except ValueError:
            return 0.0

    return PipelineView(
        id=record.get("id", ""),
        nickname=record.get("nickname", ""),
        hostname=record.get("hostname", ""),
        pid=int(number("pid")),
        version=record.get("version", ""),
        status=record.get("status", ""),
        obstacle=record.get("obstacle", ""),
        jobs=int(number("jobs")),
        concurrent=int(number("concurrent")),
        disk_usage=number("disk_usage"),
        disk_available=int(number("disk_available")),
        mem_usage=number("mem_usage"),
        mem_available=int(number("mem_available")),
        load_average_1m=number("load_average_1m"),
        at=clock.rfc3339(number("ts")),
    )
