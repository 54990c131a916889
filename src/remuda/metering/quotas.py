"""Quotas: what an account may use in a day or a month, or store. `quotas.lua` counts towards them with each
push; a hard one refuses what is new (`fleet/uses.py`, and what clients push), both tell the webhook."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request

from remuda.accounts.audit import Audit
from remuda.accounts.model import check_account
from remuda.base import clock
from remuda.base.errors import InvalidArgument
from remuda.fleet.origin import Scope
from remuda.fleet.route import Route, origin_of
from remuda.fleet.uses import quota_error
from remuda.keyspace.accounts import ACCESS_VERSION, ACCOUNT, ACCOUNTS
from remuda.keyspace.metering import QUOTA_USE, QUOTAS
from remuda.metering.model import DAY_MS, Level, Precision, Services
from remuda.metering.usage import TimeRange, UsageReader
from remuda.store import Store

Period = Literal["day", "month", "now"]
Amount = Annotated[int, Meta(ge=1, le=2**53 - 1)]
NONE = "-"

_name = re.compile(r"([a-z][a-z0-9-]*)\.([A-Za-z][A-Za-z0-9]*)").fullmatch


class QuotaChange(Struct):
    """A quota to set: a hard limit, a soft one or both, in a `day` or `month`. What is stored has no period.
    Null removes a limit; what is not named stays."""

    hard: Amount | UnsetType | None = UNSET
    soft: Amount | UnsetType | None = UNSET
    period: Literal["day", "month"] | None = None


class QuotasChange(Struct):
    """Quotas by `service.measure`; null removes one."""

    quotas: dict[str, QuotaChange | None]


class QuotaView(Struct, rename="camel"):
    """A quota of an account, what is used of it in this period, and when that ends: null for what is
    stored."""

    account: str
    quota: str
    period: Period
    hard: int | None
    soft: int | None
    used: int
    frees_at: str | None


class QuotaList(Struct):
    """Quotas by account and name."""

    quotas: list[QuotaView]


def period_start(period: Period, now_ms: int) -> int:
    """When the period of a moment began; as `quotas.lua` has it."""
    if period == "now":
        return 0
    day = now_ms - now_ms % DAY_MS
    if period == "day":
        return day
    return day - (int(clock.rfc3339(now_ms / 1000)[8:10]) - 1) * DAY_MS


class Quotas:
    """The quotas of all accounts."""

    def __init__(self, store: Store, services: Services, *, precision: Precision) -> None:
        self._store = store
        self._services = services
        self._precision = precision

    async def of(self, accounts: Iterable[str]) -> list[QuotaView]:
        """All quotas of these accounts."""
        asked = [
            (account, self._store.hgetall(QUOTAS(account)), self._store.hgetall(QUOTA_USE(account)))
            for account in accounts
        ]
        return [view for account, stored, use in asked for view in _views(account, await stored, await use)]

    async def check(self, account: str, services: Iterable[str]) -> None:
        """AccountLimitReached if the account has used up a hard quota of one of these services."""
        wanted = set(services)
        for view in await self.of([account]):
            if view.quota.partition(".")[0] in wanted and view.hard is not None and view.used >= view.hard:
                raise quota_error(
                    account,
                    view.quota,
                    limit=view.hard,
                    used=view.used,
                    period=view.period,
                    frees_at=clock.parse_rfc3339(view.frees_at) if view.frees_at else 0.0,
                )

    async def change(self, account: str, changes: Mapping[str, QuotaChange | None]) -> list[QuotaView]:
        """Sets quotas of an account, which is made if there is none; all that it has then."""
        known = {view.quota: view for view in await self.of([check_account(account)])}
        texts = {
            name: None if change is None else self._merge(name, change, known.get(name))
            for name, change in changes.items()
        }
        async with self._store.transaction() as transaction:
            transaction.sadd(ACCOUNTS(), account)
            transaction.hsetnx(ACCOUNT(account), "createdAt", clock.rfc3339())
            transaction.incr(ACCESS_VERSION())
            for name, text in texts.items():
                if text is None:
                    transaction.hdel(QUOTAS(account), name)
                    transaction.hdel(QUOTA_USE(account), name, f"{name}.since", f"{name}.until")
                else:
                    transaction.hset(QUOTAS(account), {name: text})
        for name, text in texts.items():
            period = text.rpartition(" ")[2] if text else ""
            if text and (name not in known or known[name].period != period):
                await self._count_use(account, name, period)  # type: ignore[arg-type]
        return await self.of([account])

    def _merge(self, name: str, change: QuotaChange, known: QuotaView | None) -> str | None:
        match = _name(name)
        if match is None:
            raise InvalidArgument(f"{name[:60]!r} is not a quota; write it as grid.browserSeconds")
        service = self._services.find(match[1])
        if match[2] not in (*service.counted, *service.states):
            names = ", ".join((*service.counted, *service.states))
            raise InvalidArgument(f"{service.name} does not have {match[2]!r}; it has {names}"[:500])
        hard = (known and known.hard) if change.hard is UNSET else change.hard
        soft = (known and known.soft) if change.soft is UNSET else change.soft
        if hard is None and soft is None:
            return None
        is_state = match[2] in service.states
        before = None if known is None else known.period
        period: Period | None = "now" if is_state else change.period or before
        if period is None or (is_state and change.period):
            raise InvalidArgument(
                f"{name} is what is stored now, and has no period"
                if is_state
                else f"{name} needs a period: day or month"
            )
        return f"{hard or NONE} {soft or NONE} {period}"

    async def _count_use(self, account: str, name: str, period: Period) -> None:
        """Begins with what was used in this period before there was a quota. What is pushed in the very
        moment may count twice towards it, but not on the meter."""
        service, _, measure = name.partition(".")
        now = clock.now_ms()
        since = period_start(period, now)
        reader = UsageReader(self._store, self._services[service], precision=self._precision)
        asked = TimeRange(since or now - now % (self._precision * 60_000), now)
        (usage,) = await reader.read(Level.ACCOUNTS, [account], asked)
        used = usage.states[measure][1] if period == "now" else usage.counts.get(measure, 0)
        until = {"now": 0, "day": since + DAY_MS, "month": period_start("month", since + 32 * DAY_MS)}[period]
        await self._store.hset(
            QUOTA_USE(account), {name: used, f"{name}.since": since, f"{name}.until": until}
        )


def _views(account: str, stored: Mapping[str, str], use: Mapping[str, str]) -> list[QuotaView]:
    views = []
    for name, text in sorted(stored.items()):
        hard, soft, period = text.split(" ")
        until = int(use.get(f"{name}.until", 0))
        is_over = period != "now" and until <= clock.now_ms()
        views.append(
            QuotaView(
                account=account,
                quota=name,
                period=period,  # type: ignore[arg-type]
                hard=None if hard == NONE else int(hard),
                soft=None if soft == NONE else int(soft),
                used=0 if is_over else max(0, int(use.get(name, 0))),
                frees_at=None if period == "now" or is_over else clock.rfc3339(until / 1000),
            )
        )
    return views


def _limits(view: QuotaView) -> str:
    """As a person writes them, and as `remuda account set` prints them."""
    hard, soft = ("none" if limit is None else limit for limit in (view.hard, view.soft))
    return f"{hard}{'' if view.period == 'now' else f'/{view.period}'}, soft {soft}"


class QuotasApi:
    """Shows quotas, and sets them."""

    def __init__(self, store: Store, services: Services, *, precision: Precision) -> None:
        self._store = store
        self._quotas = Quotas(store, services, precision=precision)
        self._audit = Audit(store)

    async def list_quotas(self, request: Request) -> QuotaList:
        own = origin_of(request).limited_to
        accounts = sorted(await self._store.smembers(ACCOUNTS())) if own is None else [own]
        return QuotaList(await self._quotas.of(accounts))

    async def change_quotas(self, request: Request, body: QuotasChange) -> QuotaList:
        account = request.path_params["account"]
        changed = await self._quotas.change(account, body.quotas)
        limits = {view.quota: _limits(view) for view in changed}
        details = {name: limits.get(name, "removed") for name in body.quotas}
        await self._audit.record(origin_of(request), "quota.set", account, **details)
        return QuotaList(changed)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/quotas",
                "Quotas and what is used of them: those of the account, for operators all",
                self.list_quotas,
                QuotaList,
                scope=Scope.USAGE,
            ),
            Route(
                "PATCH",
                "/api/quotas/{account}",
                "Set quotas of an account, which is made if there is none",
                self.change_quotas,
                QuotaList,
                body=QuotasChange,
                example={
                    "quotas": {"grid.browserSeconds": {"hard": 360000, "soft": 300000, "period": "month"}}
                },
            ),
        ]
