"""The HTTP of metering: events from programs in other languages, Utapi's listings, and views of operators."""

import asyncio
import json
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda.accounts.audit import Audit
from remuda.accounts.keys import AccessKeys
from remuda.base import clock
from remuda.base.errors import Forbidden, InvalidArgument, RemudaError, StoreUnavailable, Unauthorized
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.route import Route, origin_of, read_raw_body
from remuda.fleet.services import Service
from remuda.keyspace.metering import OWNERS, POISON
from remuda.metering.listing import (
    PROBLEMS,
    ListedUsage,
    Listing,
    ListingFailure,
    ListingProblem,
    ListingRequest,
    answer,
    read_listing,
)
from remuda.metering.model import Level, is_resource
from remuda.metering.owners import Owned, OwnedLevel, Owners, Reassigned, find_foreign
from remuda.metering.push import Event, Metering
from remuda.metering.reconcile import Correction, Drift, Reconciler
from remuda.metering.replay import Poison
from remuda.metering.signature import MAX_SKEW, is_signed, read_authorization, signed_at
from remuda.metering.usage import Usage, UsageReader, recent_range
from remuda.store import Store

log = get_logger(__name__)

MAX_EVENTS = 1000
MAX_BODY = 2 << 20
JSON = "application/json"
SIGNATURE_HEADER = "x-remuda-authorization"
"""Where the front door puts the Authorization header of a request that may be signed."""


class NewEvent(Struct):
    """An event. Without an id it is counted whenever it comes; without a timestamp it happens now."""

    action: str
    params: dict[str, Any] = {}
    id: str | None = None
    service: str = "s3"
    timestamp: int | None = None


class Healthy(Struct):
    """An empty object."""


class EventsCounted(Struct):
    """How many events of a list were counted, and how many had been counted before."""

    accepted: int
    duplicates: int


class DriftList(Struct):
    """Counters that disagree with their states."""

    drift: list[Drift]


class CorrectionList(Struct):
    """What was corrected, newest first."""

    corrections: list[Correction]


class Reconcile(Struct):
    """What to correct: one state, to a value if that is given; or everything that disagrees."""

    service: str = ""
    level: str = ""
    resource: str = ""
    metric: str = ""
    value: int | None = None


class OwnersQuery(Struct):
    """Which bucket or user; all that operators have assigned if none is named."""

    service: str = "s3"
    level: OwnedLevel = "buckets"
    resource: str = ""


class NewOwner(Struct):
    """The account that a bucket or user is to belong to."""

    resource: str
    account: str
    service: str = "s3"
    level: OwnedLevel = "buckets"


class OwnerList(Struct):
    """Buckets and users, and the accounts that they belong to."""

    owners: list[Owned]


class PoisonList(Struct):
    """Events that could not be replayed, newest first."""

    poison: list[Poison]


Events = NewEvent | list[NewEvent]
_decode_events = msgspec.json.Decoder(Events).decode


def read_events(body: bytes) -> list[NewEvent]:
    """The events of a request; InvalidArgument names the event and the field that is wrong."""
    try:
        try:
            new = _as_list(_decode_events(body))
        except msgspec.ValidationError:
            # It does not say which event is wrong. And what it does not read, such as 1e400, this does.
            new = [_read_event(place, each) for place, each in enumerate(_as_list(json.loads(body)))]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"The body is not valid JSON: {error}.") from error
    if not 0 < len(new) <= MAX_EVENTS:
        raise InvalidArgument(f"A list must have 1 to {MAX_EVENTS} events, and has {len(new)}.")
    return new


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _read_event(place: int, given: Any) -> NewEvent:
    try:
        return msgspec.convert(given, NewEvent)
    except msgspec.ValidationError as error:
        event_id = given.get("id") if isinstance(given, dict) else None
        # msgspec ends with the field: "Expected `str`, got `int` - at `$.action`".
        problem = str(error).replace("at `$.", "at `")
        raise InvalidArgument(f"{_name_of(place, event_id)}: {problem}.") from None


def _name_of(place: int, event_id: object) -> str:
    return f"Event {place}" + (f" ({event_id[:50]!r})" if isinstance(event_id, str) else "")


class MeteringApi:
    """Takes events in, and tells what was used."""

    def __init__(self, store: Store, metering: Metering, service: Service, keys: AccessKeys) -> None:
        self._store = store
        self._metering = metering
        self._service = service
        self._keys = keys
        self._precision = metering.rules.precision
        self._reader = UsageReader(store, service, precision=self._precision)
        self._reconciler = Reconciler(store, metering.services, precision=self._precision)
        self._owners = Owners(store, metering.services)
        self._audit = Audit(store)

    # Events

    async def push_events(self, request: Request) -> EventsCounted:
        new = read_events(await read_raw_body(request, max_body=MAX_BODY))
        origin = origin_of(request)
        events = [self._check(event, place, origin) for place, event in enumerate(new)]
        try:
            foreign = await find_foreign(self._store, events)
        except StoreUnavailable:
            # What belongs to whom is looked at by the replay, before it counts them.
            pushed = await self._metering.spool_list(events)
        else:
            if foreign:
                raise Forbidden(f"{next(iter(foreign.values()))}.")
            pushed = await self._metering.push_list(events)
        return EventsCounted(pushed.accepted, pushed.duplicates)

    def _check(self, new: NewEvent, place: int, origin: Origin) -> Event:
        named = _name_of(place, new.id)
        params, account = new.params, origin.limited_to
        if account is not None:
            service = self._metering.services.get(new.service)
            if service is not None and service.by_herd:
                raise Forbidden(f"{named}: only the herd itself and operators push events of {new.service}.")
            params = {"accountId": account, **params}
            if params["accountId"] != account:
                raise Forbidden(f"{named}: params.accountId is not {account!r}, the account of the token.")
        try:
            return self._metering.check(
                new.action,
                params,
                service=new.service,
                event_id=new.id,
                timestamp=new.timestamp,
                scope=account or "",
            )
        except InvalidArgument as error:
            raise InvalidArgument(f"{named}: {error.message}.") from None

    # Utapi's listings

    async def list_metrics(self, request: Request) -> Response:
        try:
            return _respond(200, await self._list(request))
        except ListingProblem as problem:
            return _respond(problem.status, problem.body())
        except RemudaError as error:
            log.warning("usage not listed", reason=error.message)
            failure = ListingProblem("InternalError")
            return _respond(failure.status, failure.body())

    async def _list(self, request: Request) -> bytes:
        if request.method in ("GET", "HEAD"):
            raise ListingProblem("AccessForbidden")
        if request.method != "POST":
            raise ListingProblem("NotImplemented")
        body = await read_raw_body(request, max_body=MAX_BODY)
        listing = read_listing(
            Level(request.url.path.strip("/") or Level.SERVICE),
            action=request.query_params.get("Action"),
            body=body,
            now_ms=clock.now_ms(),
            precision=self._precision,
            recent=recent_range(self._precision),
        )
        account = await self._who_asks(request, body)
        resources = listing.resources if account is None else await self._own(listing, account)
        if not resources:
            raise ListingProblem("AccessDenied")
        # Of what no key can be made of there is no usage.
        readable = [name for name in resources if is_resource(name)]
        found = await self._reader.read(listing.level, readable, listing.asked)
        by_name = {usage.resource: usage for usage in found}
        none, empty = dict.fromkeys(self._service.counted, 0), dict.fromkeys(self._service.states, (0, 0))
        usages = [by_name.get(name, Usage(name, none, empty)) for name in resources]
        return await asyncio.to_thread(answer, listing, usages, self._service)

    async def _who_asks(self, request: Request, body: bytes) -> str | None:
        """The account that sees only its own; None for one that sees all. Problem if it may see nothing."""
        origin = origin_of(request)
        if origin.scopes:
            if not origin.may(Scope.USAGE):
                raise ListingProblem("AccessDenied")
            return origin.limited_to
        given = request.headers.get(SIGNATURE_HEADER, "")
        if not given.startswith("AWS4"):
            raise ListingProblem("InvalidRequest")
        signed = read_authorization(given)
        if signed is None:
            raise ListingProblem("InvalidArgument")

        def header(name: str) -> str | None:
            # The front door knows under which name the client has asked for it.
            return origin.host if name == "host" else request.headers.get(name)

        moment = signed_at(signed, header)
        if moment is None:
            raise ListingProblem("InvalidArgument")
        if abs(clock.now() - moment) > MAX_SKEW:
            raise ListingProblem("RequestTimeTooSkewed")
        try:
            grant, secret = await self._keys.find(signed.key_id)
        except Unauthorized:
            raise ListingProblem("InvalidAccessKeyId") from None
        query = request.url.query
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        if not is_signed(signed, secret, method=request.method, target=target, header=header, body=body):
            raise ListingProblem("SignatureDoesNotMatch")
        if not grant.may(Scope.USAGE):
            raise ListingProblem("AccessDenied")
        return None if Scope.ADMIN in grant.scopes else grant.account

    async def _own(self, listing: Listing, account: str) -> list[str]:
        """Those of the resources that belong to the account: as with Utapi, the others are left out."""
        if listing.level is Level.ACCOUNTS:
            return [name for name in listing.resources if name == account]
        if listing.level not in (Level.BUCKETS, Level.USERS):
            return []
        owners = await self._store.hmget(OWNERS(self._service.name, listing.level), *listing.resources)
        return [name for name, owner in zip(listing.resources, owners, strict=True) if owner == account]

    async def check_health(self, _request: Request) -> Response:
        """Utapi's health check."""
        try:
            await self._store.send("PING")
        except RemudaError:
            problem = ListingProblem("InternalError", "Redis server is not ready")
            return _respond(problem.status, problem.body())
        return _respond(200, msgspec.json.encode(Healthy()))

    # Operators

    async def list_drift(self, _request: Request) -> DriftList:
        return DriftList(await self._reconciler.find_drift())

    async def list_corrections(self, _request: Request) -> CorrectionList:
        return CorrectionList(await self._reconciler.corrections())

    async def reconcile(self, request: Request, body: Reconcile) -> CorrectionList:
        origin = origin_of(request)
        if not body.resource:
            done = await self._reconciler.reconcile(origin)
        else:
            service = self._metering.services.find(body.service or self._service.name)
            if body.level not in list(Level) or body.metric not in service.states:
                raise InvalidArgument(
                    f"level must be one of {', '.join(Level)}, and metric one of {', '.join(service.states)}."
                )
            level = Level(body.level)
            done = [
                await self._reconciler.correct(
                    origin, service.name, level, body.resource, body.metric, body.value
                )
            ]
        for each in done:
            subject = f"{each.service}/{each.level}/{each.resource}/{each.metric}"
            details = {"counter": each.counter, "state": each.state, "value": each.value}
            await self._audit.record(origin, "metering.correct", subject, **details)
        return CorrectionList(done)

    async def list_owners(self, _request: Request, query: OwnersQuery) -> OwnerList:
        if not query.resource:
            return OwnerList(await self._owners.assigned())
        return OwnerList([await self._owners.find(query.service, query.level, query.resource)])

    async def assign_owner(self, request: Request, body: NewOwner) -> Reassigned:
        done = await self._owners.assign(body.service, body.level, body.resource, body.account)
        await self._record_owner(request, "owner.assign", done)
        return done

    async def release_owner(self, request: Request, query: OwnersQuery) -> Reassigned:
        done = await self._owners.release(query.service, query.level, query.resource)
        await self._record_owner(request, "owner.release", done)
        return done

    async def _record_owner(self, request: Request, action: str, done: Reassigned) -> None:
        subject = f"{done.service}/{done.level}/{done.resource}"
        details = {"account": done.account, "before": done.before}
        await self._audit.record(origin_of(request), action, subject, **details)

    async def list_poison(self, _request: Request) -> PoisonList:
        found = await self._store.lrange(POISON(), 0, 99)
        return PoisonList([msgspec.json.decode(each, type=Poison) for each in found])

    async def drop_poison(self, request: Request) -> PoisonList:
        """Empties the list, and gives what was in it."""
        async with self._store.transaction() as taking:
            found = taking.lrange(POISON(), 0, -1)
            taking.delete(POISON())
        dropped = [msgspec.json.decode(each, type=Poison) for each in await found]
        await self._audit.record(origin_of(request), "metering.drop", "poison", count=len(dropped))
        return PoisonList(dropped)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "POST",
                "/api/metering/events",
                "Count an event or a list of events; each id counts once",
                self.push_events,
                EventsCounted,
                read_by_handler=Events,
                example={
                    "id": "5a1f0c7e",
                    "action": "putObject",
                    "params": {"bucket": "photos", "newByteLength": 1024, "oldByteLength": None},
                },
                scope=Scope.USAGE,
            ),
            Route(
                "GET", "/api/metering/drift", "Counters that disagree with states", self.list_drift, DriftList
            ),
            Route(
                "POST",
                "/api/metering/reconcile",
                "Correct a state, or everything that disagrees",
                self.reconcile,
                CorrectionList,
                body=Reconcile,
                example={"level": "buckets", "resource": "photos", "metric": "numberOfObjects"},
            ),
            Route(
                "GET",
                "/api/metering/corrections",
                "What was corrected",
                self.list_corrections,
                CorrectionList,
            ),
            Route(
                "GET",
                "/api/metering/owners",
                "The account that a bucket or user belongs to, or all that operators have assigned",
                self.list_owners,
                OwnerList,
                query=OwnersQuery,
            ),
            Route(
                "PUT",
                "/api/metering/owners",
                "Assign a bucket or user to an account, before or after its first use",
                self.assign_owner,
                Reassigned,
                body=NewOwner,
                example={"resource": "photos", "account": "web-team"},
            ),
            Route(
                "DELETE",
                "/api/metering/owners",
                "Release a bucket or user: it belongs to the account that uses it next",
                self.release_owner,
                Reassigned,
                query=OwnersQuery,
            ),
            Route(
                "GET", "/api/metering/poison", "Events that cannot be replayed", self.list_poison, PoisonList
            ),
            Route(
                "DELETE",
                "/api/metering/poison",
                "Drop the events that cannot be replayed, and show them",
                self.drop_poison,
                PoisonList,
            ),
            *(self._listing(f"/{level}", level) for level in Level),
            self._listing("/", Level.SERVICE),
            *(
                Route(
                    method,
                    f"/{level}",
                    f"Refused: usage is listed by POST /{level}",
                    self.list_metrics,
                    ListingFailure,
                    status=PROBLEMS["AccessForbidden" if method == "GET" else "NotImplemented"][0],
                    error_answer=ListingFailure,
                    scope=None,
                )
                for level in Level
                for method in ("GET", "PUT", "PATCH", "DELETE")
            ),
            *(
                Route(
                    method,
                    "/_/healthcheck",
                    "Utapi's health check",
                    self.check_health,
                    Healthy,
                    error_answer=ListingFailure,
                    scope=None,
                )
                for method in ("GET", "POST")
            ),
        ]

    def _listing(self, path: str, level: Level) -> Route:
        return Route(
            "POST",
            path,
            "Usage in Utapi's wire format: ListMetrics and ListRecentMetrics",
            self.list_metrics,
            list[ListedUsage],
            read_by_handler=ListingRequest,
            example={
                "Action": "ListRecentMetrics",
                level.value: ["s3" if level is Level.SERVICE else "photos"],
            },
            error_answer=ListingFailure,
            scope=None,
        )


def _respond(status: int, body: bytes) -> Response:
    headers = {"x-scal-request-id": secrets.token_hex(10), "Cache-Control": "no-cache"}
    return Response(body, status, headers=headers, media_type=JSON)
