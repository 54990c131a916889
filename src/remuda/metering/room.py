"""Metering: what was used, by whom and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from remuda.base.config import Config, HerdConfig, Interval, option
from remuda.base.errors import Misconfigured
from remuda.fleet.role import Role
from remuda.fleet.room import Question, RoleKind, Room, Surroundings
from remuda.keyspace.metering import MAX_REMEMBERED
from remuda.metering.model import Counting, Level, Precision, Services
from remuda.metering.s3 import S3

if TYPE_CHECKING:
    from remuda.fleet.metrics import Metric
    from remuda.fleet.route import Route
    from remuda.metering.push import Metering, PushRules

Remembered = Annotated[int, msgspec.Meta(ge=60, le=MAX_REMEMBERED)]
OrNever = Annotated[int, msgspec.Meta(ge=-1)]


@dataclass(frozen=True, kw_only=True)
class MeteringConfig:
    """What is metered, how finely, and for how long it is kept."""

    metering_precision: Literal["1", "5", "15"] = option("15", "Minutes of a time slot: 1, 5 or 15.")
    metering_levels: str = option(
        "buckets accounts users service location", "Levels that usage is counted for, separated by spaces."
    )
    metering_operations: str = option(
        "all",
        "Operations that are counted, separated by spaces; all or none. Bytes and states are always counted.",
    )
    metering_remember: Remembered = option(
        21600,
        "Seconds for which the id of an event is remembered at least, so that it is not counted again.",
    )
    metering_replay: Interval = option(
        300, "Seconds between two replays of events that could not be counted when they happened."
    )
    metering_keep_keys: Interval = option(
        86400, "Seconds for which the single keys of a time slot stay after it was rolled up."
    )
    metering_keep_days: str = option(
        "400",
        "Days for which usage is kept; 0 means for ever. For single levels: 400 accounts=800 service=0.",
    )
    metering_expire_deleted: OrNever = option(
        -1, "Seconds after which the usage of a deleted bucket is forgotten; -1 means that it is kept."
    )
    metering_with_utapi: bool = option(
        False, "Whether Utapi writes to this Redis, too: then its keys are looked for in each time slot."
    )


@dataclass(frozen=True, kw_only=True)
class HerdMeteringConfig:
    """Whether the herd meters itself, and who is told when an account reaches a quota."""

    metering: Literal["on", "off"] = option(
        "on",
        "Whether sessions, connections and artifacts are metered. Events that other programs push are always "
        "counted.",
    )
    quota_webhook: str = option(
        "", "URL that is told, by POST, when an account reaches a quota; see docs/usage.md."
    )
    quota_webhook_secret: str = option(
        "", "Secret that webhooks are signed with; best given as REMUDA_QUOTA_WEBHOOK_SECRET."
    )


def is_metered(config: Config) -> bool:
    """Whether the herd meters itself."""
    return config[HerdMeteringConfig].metering == "on"


def precision_of(config: Config) -> Precision:
    """Minutes of a time slot."""
    precision: Precision = int(config[MeteringConfig].metering_precision)  # type: ignore[assignment]
    return precision


def counting_of(config: Config) -> Counting:
    """What is counted of each event."""
    options = config[MeteringConfig]
    named = options.metering_operations.lower().split()
    operations = None if named == ["all"] else frozenset(named) - {"none"}
    try:
        levels = frozenset(map(Level, options.metering_levels.split()))
    except ValueError as error:
        raise Misconfigured(f"metering_levels: {error}; the levels are {', '.join(Level)}") from None
    if not levels:
        raise Misconfigured("metering_levels names no level")
    return Counting(levels=levels, operations=operations)


def kept_days_of(config: Config) -> Mapping[Level, int]:
    """Days for which the usage of each level is kept; 0 means for ever."""
    kept = dict.fromkeys(Level, 400)
    for word in config[MeteringConfig].metering_keep_days.split():
        level, _, days = word.rpartition("=")
        if not days.isdecimal() or (level and level not in kept):
            raise Misconfigured(f"metering_keep_days: {word!r} is neither days nor LEVEL=DAYS")
        kept |= {Level(level): int(days)} if level else dict.fromkeys(Level, int(days))
    return kept


def services_of(on: Surroundings) -> Services:
    """Every service that a room of the herd declares."""
    return Services(service for room in on.rooms for service in room.services)


def spool_directory(config: Config) -> Path:
    """Where events wait while Redis is away."""
    return config[HerdConfig].data / "spool"


def rules_of(config: Config) -> "PushRules":
    """How events are counted."""
    from remuda.metering.push import PushRules

    return PushRules(
        precision=precision_of(config),
        counting=counting_of(config),
        remember=config[MeteringConfig].metering_remember,
        keep_keys=config[MeteringConfig].metering_keep_keys,
        forgets_deleted=config[MeteringConfig].metering_expire_deleted >= 0,
    )


def make_metering(on: Surroundings) -> "Metering":
    """Where a role pushes what is used. One for a role: it is cheap, and `finish` belongs to its owner."""
    from remuda.metering.push import Metering
    from remuda.metering.spool import Spool

    return Metering(
        on.store,
        services=services_of(on),
        rules=rules_of(on.config),
        spool=Spool(spool_directory(on.config)),
    )


def _metering(on: Surroundings) -> Role:
    from remuda.metering.forget import Forgetting
    from remuda.metering.push import Metering
    from remuda.metering.replay import Replay
    from remuda.metering.role import MeteringRole
    from remuda.metering.rollup import Rollup
    from remuda.metering.timers import COUNT_EVERY, Timers
    from remuda.metering.webhooks import DELIVER_EVERY, Webhooks

    options, services = on.config[MeteringConfig], services_of(on)
    # Without a spool: what cannot be counted now is on the disk already.
    metering = Metering(on.store, services=services, rules=rules_of(on.config))
    rollup = Rollup(
        on.store,
        services,
        precision=precision_of(on.config),
        keep_keys=options.metering_keep_keys,
        keep_days=kept_days_of(on.config),
        with_utapi=options.metering_with_utapi,
    )
    replay = Replay(on.store, metering, spool_directory(on.config))
    forgetting = Forgetting(
        on.store,
        services,
        after=max(0, options.metering_expire_deleted),
        precision=precision_of(on.config),
        keep_keys=options.metering_keep_keys,
    )
    own = on.config[HerdMeteringConfig]
    webhooks = Webhooks(on.store, own.quota_webhook, secret=own.quota_webhook_secret)
    timers = Timers(on.store, metering, is_on=is_metered(on.config))
    return MeteringRole(
        on.store,
        replay,
        rollup,
        forgetting,
        replay_every=options.metering_replay,
        steps=[(timers.count_timers, COUNT_EVERY), (webhooks.deliver_webhooks, DELIVER_EVERY)],
    )


def _metrics() -> Sequence["Metric[Any]"]:
    from remuda.metering.metrics import METRICS

    return METRICS


def _questions() -> Sequence[Question]:
    from remuda.metering.doctor import QUESTIONS

    return QUESTIONS


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.accounts.keys import FILE, AccessKeys
    from remuda.metering.http import MeteringApi
    from remuda.metering.quotas import QuotasApi
    from remuda.metering.reports import UsageReports

    keys = AccessKeys(on.store, on.config[HerdConfig].data / FILE)
    reports = UsageReports(on.store, services_of(on), precision=precision_of(on.config))
    quotas = QuotasApi(on.store, services_of(on), precision=precision_of(on.config))
    return [
        *MeteringApi(on.store, make_metering(on), S3, keys).routes(),
        *reports.routes(),
        *quotas.routes(),
    ]


ROOM = Room(
    name="metering",
    config=[MeteringConfig, HerdMeteringConfig],
    roles=[RoleKind(name="metering", make=_metering)],
    routes=_routes,
    about="What was used, by whom and when; quotas; Utapi's listings",
    metrics=_metrics,
    questions=_questions,
    services=[S3],
)
