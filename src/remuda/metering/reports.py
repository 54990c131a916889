"""`GET /api/usage`: what resources used, as series and totals, in JSON or CSV; and which there are."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.accounts.model import read_duration
from remuda.base import clock
from remuda.base.errors import Forbidden, InvalidArgument
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.route import Route, json_response, origin_of
from remuda.fleet.services import STORAGE, Service
from remuda.keyspace.metering import OWNERS, RESOURCES
from remuda.metering.model import DAY_MS, Level, Precision, Services, is_resource
from remuda.metering.series import HOUR_MS, Series, SeriesReader, SeriesSteps, Step
from remuda.store import Store

MAX_RESOURCES = 1000
MAX_CELLS = 200_000
"""Steps of all resources together that one answer may have."""
MAX_DAYS = 3660
GIGABYTE_HOUR = 10**9 * HOUR_MS
CSV = "text/csv; charset=utf-8"
PAGE = 500
LOOKED_AT = 10_000
"""Resources that one request for a list looks at, to find those of an account."""

_milliseconds = re.compile(r"\d{12,14}").fullmatch


class UsageQuery(Struct):
    """What of whom. Several services, resources and measures are separated by commas; without services it is
    all of them, without resources the account of the token, or for operators all of the level. `start` and
    `end` are RFC 3339 or milliseconds since 1970; without them, the last `since`, such as 24h or 30d."""

    service: str = ""
    level: Level = Level.ACCOUNTS
    resource: str = ""
    measure: str = ""
    start: str = ""
    end: str = ""
    since: str = "24h"
    step: Literal["slot", "hour", "day", "total"] = "hour"
    format: Literal["json", "csv"] = "json"


class ResourceUsage(Struct, rename="camel"):
    """What one resource used of one service. `series` has a list for each operation, measure and state that
    was not 0 throughout: of a state, its value at the end of each step. `totals` has the sums; of a state,
    the last value. `gigabyteHours` is the storage, integrated over time."""

    service: str
    level: Level
    resource: str
    totals: dict[str, int]
    series: dict[str, list[int]]
    gigabyte_hours: float | None = None


class UsageReport(Struct, rename="camel"):
    """Usage from `start` up to `end`; `times` says when each step begins. All times are UTC."""

    start: str
    end: str
    step: str
    times: list[str]
    usage: list[ResourceUsage]


class ResourcesQuery(Struct):
    """Which resources: of a service and a level, last used first."""

    service: str
    level: Level = Level.ACCOUNTS
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[int, Meta(ge=0)] = 0


class KnownResource(Struct, rename="camel"):
    """A resource, and the time slot in which it was last used."""

    resource: str
    account: str | None
    used_at: str


class ResourceList(Struct):
    """Resources; `cursor` is that of the next page, null on the last. `services` are all that can be asked
    for, with their levels and what is metered of them."""

    resources: list[KnownResource]
    cursor: int | None


class ServiceView(Struct):
    """A service and what is metered of it."""

    name: str
    operations: list[str]
    measures: list[str]
    states: list[str]


class ServiceList(Struct, rename="camel"):
    """All that is metered. `slotMinutes` is how finely."""

    services: list[ServiceView]
    levels: list[Level]
    slot_minutes: int


def read_range(query: UsageQuery, now_ms: int) -> tuple[int, int]:
    """Start and end in milliseconds; InvalidArgument says which of them is wrong."""
    end = _moment("end", query.end) if query.end else now_ms
    start = _moment("start", query.start) if query.start else end - int(read_duration(query.since) * 1000)
    if start >= end:
        raise InvalidArgument("start must be before end")
    if end - start > MAX_DAYS * DAY_MS:
        raise InvalidArgument(f"start and end are more than {MAX_DAYS} days apart")
    return start, min(end, now_ms + DAY_MS)


def _moment(name: str, text: str) -> int:
    if _milliseconds(text):
        return int(text)
    try:
        return int(clock.parse_rfc3339(text if "T" in text else f"{text}T00:00:00Z") * 1000)
    except ValueError:
        raise InvalidArgument(
            f"{name} is {text[:50]!r}; write it as 2026-01-31, 2026-01-31T12:00:00Z or in milliseconds"
        ) from None


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


class UsageReports:
    """Answers questions about usage."""

    def __init__(self, store: Store, services: Services, *, precision: Precision) -> None:
        self._store = store
        self._services = services
        self._precision = precision

    async def report(self, request: Request, query: UsageQuery) -> Response:
        origin, now = origin_of(request), clock.now_ms()
        start, end = read_range(query, now)
        services = [self._services.find(name) for name in _listed(query.service) or self._services]
        wanted = {service.name: await self._resources(query, service, origin) for service in services}
        measures = frozenset(_listed(query.measure))
        # What a total is added up from decides how exactly it begins and ends.
        steps: Sequence[Step] = ("slot", "hour", "day") if query.step == "total" else (query.step,)
        choices = [SeriesSteps.over(start, end, step, self._precision) for step in steps]
        count = sum(map(len, wanted.values()))
        chosen = next((chosen for chosen in choices if chosen.count * count <= MAX_CELLS), None)
        if chosen is None:
            raise InvalidArgument(
                f"That would be more than {MAX_CELLS} steps; ask for fewer resources, a shorter time or a "
                "longer step"
            )
        usage = []
        for service in services:
            reader = SeriesReader(self._store, service, precision=self._precision)
            found = await reader.read(query.level, wanted[service.name], chosen)
            is_asked = bool(query.resource)
            usage += [
                view
                for series in found
                if (view := _view(service, query.level, series, measures)).totals or is_asked
            ]
        if query.step == "total":
            for view in usage:
                view.series = {}
        report = UsageReport(
            start=_stamp(chosen.start),
            end=_stamp(min(chosen.end, max(end, chosen.start))),
            step=query.step,
            times=[] if query.step == "total" else [_stamp(time) for time in chosen.times],
            usage=usage,
        )
        if query.format == "json":
            return json_response(report)
        headers = {
            "Cache-Control": "no-cache",
            "Content-Disposition": 'attachment; filename="usage.csv"',
        }
        return Response(write_csv(report), headers=headers, media_type=CSV)

    async def _resources(self, query: UsageQuery, service: Service, origin: Origin) -> list[str]:
        """The resources that are asked for; Forbidden if one of them is another account's."""
        asked, own = _listed(query.resource), origin.limited_to
        if len(asked) > MAX_RESOURCES:
            raise InvalidArgument(f"At most {MAX_RESOURCES} resources can be asked for at a time")
        if any(not is_resource(name) for name in asked):
            raise InvalidArgument("A resource has up to 255 letters, digits, '.', '_' and '-'")
        if own is None:
            used_last = ("ZRANGE", RESOURCES(service.name, query.level), 0, MAX_RESOURCES - 1, "REV")
            return asked or list(await self._store.send(*used_last))
        if query.level is Level.ACCOUNTS:
            if set(asked) - {own}:
                raise Forbidden(f"This token sees the usage of the account {own!r} only.")
            return [own]
        if query.level not in (Level.BUCKETS, Level.USERS):
            raise Forbidden(f"The usage of the level {query.level} is for operators.")
        if not asked:
            raise InvalidArgument("resource is missing: /api/usage/resources lists those of the account")
        owners = await self._store.hmget(OWNERS(service.name, query.level), *asked)
        if set(owners) - {own, None}:
            raise Forbidden(f"This token sees the usage of the account {own!r} only.")
        return [name for name, owner in zip(asked, owners, strict=True) if owner == own]

    async def list_resources(self, request: Request, query: ResourcesQuery) -> ResourceList:
        service, own = self._services.find(query.service), origin_of(request).limited_to
        if own is not None and query.level not in (Level.ACCOUNTS, Level.BUCKETS, Level.USERS):
            raise Forbidden(f"The usage of the level {query.level} is for operators.")
        found: list[KnownResource] = []
        place = query.cursor
        while len(found) < query.limit and place < query.cursor + LOOKED_AT:
            page = await self._store.send(
                "ZRANGE",
                RESOURCES(service.name, query.level),
                place,
                place + PAGE - 1,
                "REV",
                "WITHSCORES",
            )
            if not page:
                return ResourceList(found, None)
            names = [name for name, _ in page]
            owners: Sequence[str | None] = names
            if query.level is not Level.ACCOUNTS:
                owners = await self._store.hmget(OWNERS(service.name, query.level), *names)
            for (name, used), owner in zip(page, owners, strict=True):
                place += 1
                if own is None or owner == own:
                    found.append(KnownResource(name, owner, _stamp(int(used))))
                if len(found) == query.limit:
                    break
        return ResourceList(found, place)

    async def list_services(self, _request: Request) -> ServiceList:
        return ServiceList(
            [
                ServiceView(
                    service.name, list(service.operations), list(service.measures), list(service.states)
                )
                for service in self._services.values()
            ],
            list(Level),
            self._precision,
        )

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/usage",
                "What accounts and other resources used, by time slot, hour or day; JSON or CSV",
                self.report,
                UsageReport,
                query=UsageQuery,
                scope=Scope.USAGE,
            ),
            Route(
                "GET",
                "/api/usage/resources",
                "The resources of a service that have any usage, last used first",
                self.list_resources,
                ResourceList,
                query=ResourcesQuery,
                scope=Scope.USAGE,
            ),
            Route(
                "GET",
                "/api/usage/services",
                "The services that are metered, and what is metered of each",
                self.list_services,
                ServiceList,
                scope=Scope.USAGE,
            ),
        ]


def _view(service: Service, level: Level, series: Series, measures: frozenset[str]) -> ResourceUsage:
    def is_wanted(name: str) -> bool:
        return not measures or name in measures

    counts = {name: series.counts[name] for name in service.counted if name in series.counts}
    counts = {name: numbers for name, numbers in counts.items() if is_wanted(name)}
    states = {name: numbers for name, numbers in series.states.items() if any(numbers) and is_wanted(name)}
    totals = {name: sum(numbers) for name, numbers in counts.items()}
    totals |= {name: numbers[-1] for name, numbers in states.items()}
    hours = round(sum(series.held[STORAGE]) / GIGABYTE_HOUR, 9) if STORAGE in states else None
    return ResourceUsage(service.name, level, series.resource, totals, {**counts, **states}, hours)


def _stamp(milliseconds: int) -> str:
    return clock.rfc3339(milliseconds / 1000)


def write_csv(report: UsageReport) -> str:
    """One number a line; of totals, without a time."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", "service", "level", "resource", "measure", "value"])
    writer.writerows(_rows(report))
    return text.getvalue()


def _rows(report: UsageReport) -> Iterator[Iterable[object]]:
    for each in report.usage:
        place = (each.service, each.level.value, each.resource)
        if report.step == "total":
            for measure, total in each.totals.items():
                yield (report.start, *place, measure, total)
            if each.gigabyte_hours is not None:
                yield (report.start, *place, "gigabyteHours", each.gigabyte_hours)
            continue
        for measure, numbers in each.series.items():
            for time, number in zip(report.times, numbers, strict=True):
                yield (time, *place, measure, number)
