"""Artifacts: what sessions and jobs leave behind."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.base.config import Config, Count, HerdConfig, option
from remuda.fleet.internal import internal_hosts_of
from remuda.fleet.metrics import Metric, MetricKind, ReadNumbers, by, or_none
from remuda.fleet.role import Role
from remuda.fleet.room import RoleKind, Room, Surroundings
from remuda.keyspace import metrics, rules
from remuda.keyspace.storage import STORAGE_METADATA_PENDING
from remuda.metering.room import is_metered, make_metering
from remuda.storage.usage import ARTIFACTS


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """Where artifacts are, and how much they may take."""

    storage: str = option("", "Directory for artifacts; by default `storage` in the data directory.")
    storage_megabytes: Count = option(
        20_000, "Size limit of all artifacts in megabytes; 0 means the whole disk."
    )


def storage_directory(config: Config) -> Path:
    """Where artifacts are."""
    named = config[StorageConfig].storage
    return Path(named) if named else config[HerdConfig].data / "storage"


def _storage(on: Surroundings) -> Role:
    from remuda.storage.model import StorageLimits
    from remuda.storage.role import Storage

    limits = StorageLimits(size=on.config[StorageConfig].storage_megabytes * 1_000_000 or None)
    kinds = [kind for room in on.rooms for kind in room.owners(on)]
    hosts = internal_hosts_of(on.config, on.store, on.tls)
    metering = make_metering(on) if is_metered(on.config) else None
    directory = storage_directory(on.config)
    return Storage(on.store, directory, kinds=kinds, limits=limits, hosts=hosts, metering=metering)


@dataclass(frozen=True)
class StorageNumbers:
    """What there is to tell of each storage, by its id."""

    limits: Mapping[str, float]
    used: Mapping[str, float]
    news: Mapping[str, float]
    """Files that its index does not know yet."""


async def _storages(on: Surroundings) -> StorageNumbers:
    keys = metrics.METRICS_STORAGE_TOTAL(), metrics.METRICS_STORAGE_USED()
    limits, used = (await ReadNumbers(keys, re.compile(rules.ID))(on)).values()
    replies = [(each, on.store.llen(STORAGE_METADATA_PENDING(each))) for each in sorted({*limits, *used})]
    counted = {each: await or_none(reply, storage=each) for each, reply in replies}
    news = {each: count for each, count in counted.items() if count is not None}
    return StorageNumbers(limits, used, news)


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "webgrid_storage_disk_bytes_limit",
        MetricKind.GAUGE,
        ("id",),
        "Size limit of each storage",
        (metrics.METRICS_STORAGE_TOTAL,),
        _storages,
        lambda found: by("id", found.limits),
    ),
    Metric(
        "webgrid_storage_disk_bytes_total",
        MetricKind.GAUGE,
        ("id",),
        "The same as webgrid_storage_disk_bytes_limit, under WebGrid's name",
        (metrics.METRICS_STORAGE_TOTAL,),
        _storages,
        lambda found: by("id", found.limits),
    ),
    Metric(
        "webgrid_storage_disk_bytes_used",
        MetricKind.GAUGE,
        ("id",),
        "Bytes used in each storage",
        (metrics.METRICS_STORAGE_USED,),
        _storages,
        lambda found: by("id", found.used),
    ),
    Metric(
        "remuda_storage_news",
        MetricKind.GAUGE,
        ("id",),
        "Files that are not yet in the index of their storage",
        (STORAGE_METADATA_PENDING,),
        _storages,
        lambda found: by("id", found.news),
    ),
)

ROOM = Room(
    name="storage",
    config=[StorageConfig],
    roles=[RoleKind(name="storage", make=_storage)],
    services=[ARTIFACTS],
    metrics=lambda: METRICS,
)
