"""The settings of a job, which can change while it runs. Each change raises `settings_age` and is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import UNSET, Struct, UnsetType

from remuda.archive.agents import find_user_agent
from remuda.archive.crawler.model import USER_AGENT, CrawlSettings
from remuda.archive.ignores import patterns_of, validate
from remuda.archive.model import (
    MOST_IGNORES,
    OPEN,
    SETTINGS_FIELDS,
    Downloaders,
    Ident,
    JobSettings,
    Milliseconds,
    Pattern,
    ShortText,
)
from remuda.base.errors import InUse, InvalidArgument
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.keyspace import archive
from remuda.store import Store, load_script

_CHANGE = load_script(
    __file__,
    "change.lua",
    keys=[archive.JOB, archive.JOB_IGNORES],
    args=["states", "most", "settings", "changes"],
    shared="job.lua",
)


class SettingsChange(Struct, rename="camel"):
    """Settings to change; what is not named stays. Delays are in milliseconds."""

    delay_min: Milliseconds | UnsetType = UNSET
    delay_max: Milliseconds | UnsetType = UNSET
    concurrency: Downloaders | UnsetType = UNSET
    user_agent: ShortText | UnsetType = UNSET
    suppress_ignore_reports: bool | UnsetType = UNSET
    no_offsite_links: bool | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    note: ShortText | UnsetType = UNSET


class IgnoresChange(Struct):
    """Ignore patterns to add to a job and to remove from it, and named sets whose patterns to add."""

    add: Annotated[list[Pattern], msgspec.Meta(max_length=MOST_IGNORES)] = []
    remove: Annotated[list[str], msgspec.Meta(max_length=MOST_IGNORES)] = []
    sets: list[Annotated[str, msgspec.Meta(max_length=100)]] = []


class ChangedIgnores(Struct, rename="camel"):
    """How many patterns were added and removed, and the new version of the settings."""

    added: int
    removed: int
    settings_age: int


@dataclass(frozen=True)
class LiveSettings:
    """The settings of a job at one moment, with their version."""

    age: int
    settings: JobSettings
    ignores: Sequence[str]
    is_aborted: bool
    """Whether the job is to end."""

    def for_crawl(self, *, user_agent: str = USER_AGENT, skip_duplicate_pages: bool = True) -> CrawlSettings:
        """The same as the crawl takes them; with the User-Agent for jobs that have none of their own."""
        settings = self.settings
        return CrawlSettings(
            delay_min=settings.delay_min / 1000,
            delay_max=settings.delay_max / 1000,
            concurrency=settings.concurrency,
            user_agent=settings.user_agent or user_agent,
            ignores=tuple(self.ignores),
            suppress_ignore_reports=settings.suppress_ignore_reports,
            offsite_links=not settings.no_offsite_links,
            skip_duplicate_pages=skip_duplicate_pages,
            is_paused=settings.paused,
        )


class JobSettingsEditor:
    """Reads and changes the settings of jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, ident: Ident) -> LiveSettings:
        """The settings as they are now."""
        names = (*SETTINGS_FIELDS, "settings_age", "abort_requested", "finished_at")
        async with self._store.transaction() as transaction:
            values = transaction.hmget(archive.JOB(ident), *names)
            ignores = transaction.smembers(archive.JOB_IGNORES(ident))
        fields = {name: value for name, value in zip(names, await values, strict=True) if value is not None}
        return LiveSettings(
            age=int(fields.get("settings_age", 0)),
            settings=JobSettings.read(fields),
            ignores=sorted(await ignores),
            is_aborted=bool(fields.get("abort_requested")) or "finished_at" in fields,
        )

    async def change(self, ident: Ident, change: SettingsChange) -> LiveSettings:
        """Changes settings of a job; InUse if it has ended."""
        given = {
            name: value
            for name, value in msgspec.structs.asdict(change).items()
            if not isinstance(value, UnsetType)
        }
        note = given.pop("note", None)
        if "user_agent" in given:
            given["user_agent"] = find_user_agent(given["user_agent"])
        before = (await self.read(ident)).settings
        fields = msgspec.structs.replace(before, **given).fields()
        changed = {name: fields[name] for name in given}
        if note is not None:
            changed["note"] = note
        await self._change(ident, fields=changed)
        return await self.read(ident)

    async def request_abort(self, ident: Ident) -> None:
        """Has the pipeline end a job that it runs."""
        await self._change(ident, fields={"abort_requested": "true"})

    async def change_ignores(
        self, ident: Ident, change: IgnoresChange, *, account: str = DEFAULT_ACCOUNT
    ) -> ChangedIgnores:
        """Adds and removes ignore patterns, for somebody of this account. InvalidArgument, with the reason,
        if one cannot be used."""
        await validate(change.add, account)
        wanted = [*change.add, *(pattern for name in change.sets for pattern in patterns_of(name))]
        age, added, removed = await self._change(ident, add=list(dict.fromkeys(wanted)), remove=change.remove)
        return ChangedIgnores(added=added, removed=removed, settings_age=age)

    async def _change(
        self,
        ident: Ident,
        *,
        fields: Mapping[str, str] | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> Sequence[int]:
        fields = fields or {}
        changes = {
            "set": {name: value for name, value in fields.items() if value or name == "user_agent"},
            # A boolean is `true` or absent, as in the original.
            "drop": [name for name, value in fields.items() if not value and name != "user_agent"],
            "add": list(add),
            "remove": list(remove),
        }
        answer: list[int | str] = await self._store.run(
            _CHANGE,
            keys=[archive.JOB(ident), archive.JOB_IGNORES(ident)],
            args=[
                "".join(f",{state}," for state in OPEN),
                MOST_IGNORES,
                archive.JOB_SETTINGS(ident),
                msgspec.json.encode(changes),
            ],
        )
        if answer[:2] == [0, "limit"]:
            raise InvalidArgument(f"A job has at most {MOST_IGNORES} ignore patterns")
        if not answer[0]:
            raise InUse(f"Job {ident} has ended: it is {answer[1] or 'expired'}")
        return [int(number) for number in answer]
