"""Whatever happens to jobs, in whichever order: each is in exactly one place, and its age only grows."""

import random
from contextlib import suppress

import pytest

from jobs import URL, claim_job, new_pipeline, queue_job
from remuda.archive.ending import abort_job
from remuda.archive.jobs import Jobs, lease_of
from remuda.archive.logs import Logs
from remuda.archive.model import ENDED, Ident, JobState, PipelineKey, RunId, state_of
from remuda.archive.records import Claim, Progress
from remuda.archive.recovery import recover
from remuda.archive.settings import IgnoresChange, JobSettingsEditor, SettingsChange
from remuda.base.errors import AlreadyExists, InUse
from remuda.keyspace import archive
from remuda.store import Store
from remuda.store.census import take_census

URLS = [f"{URL}{number}" for number in range(4)]
STEPS = 250


class Herd:
    """Jobs, and pipelines that do with them what they like."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._jobs = Jobs(store)
        self._claims: list[tuple[PipelineKey, Claim]] = []
        """Also those that are not good any more."""
        self._ages: dict[str, int] = {}
        self.idents: set[Ident] = set()

    async def step(self) -> None:
        deeds = (self.ask, self.claim, self.beat, self.end, self.die, self.leave, self.abort, self.change)
        await self._random.choice(deeds)()

    async def ask(self) -> None:
        depth = self._random.choice(["inf", "shallow"])
        with suppress(AlreadyExists):
            record = await queue_job(self._store, self._random.choice(URLS), depth=depth)
            self.idents.add(Ident(record.ident))
            self._ages.pop(record.ident, None)

    async def claim(self) -> None:
        pipeline = new_pipeline()
        if claim := await claim_job(self._store, pipeline):
            self._claims.append((pipeline, claim))

    async def beat(self) -> None:
        if self._claims:
            pipeline, claim = self._random.choice(self._claims)
            await self._jobs.beat(claim, pipeline, Progress({}, {}))
            await Logs(self._store).append(claim.run, [b'{"type":"stdout"}'])

    async def end(self) -> None:
        if self._claims:
            pipeline, claim = self._random.choice(self._claims)
            await self._jobs.finish(claim.run, self._random.choice(sorted(ENDED)), asker=pipeline)

    async def die(self) -> None:
        if self._claims:
            _, claim = self._random.choice(self._claims)
            await self._store.delete(lease_of(claim.ident))
            await recover(self._store, claim.run, asker="", max_deaths=2, cause="It died")

    async def leave(self) -> None:
        if self._claims:
            pipeline, claim = self._random.choice(self._claims)
            await self._jobs.requeue(claim.run, asker=pipeline)

    async def abort(self) -> None:
        if self.idents:
            await abort_job(self._store, await self._jobs.newest(self._random.choice(sorted(self.idents))))

    async def change(self) -> None:
        if self.idents:
            ident = self._random.choice(sorted(self.idents))
            with suppress(InUse):
                await JobSettingsEditor(self._store).change(ident, SettingsChange(concurrency=5))
                await JobSettingsEditor(self._store).change_ignores(ident, IgnoresChange(add=["/x/"]))

    async def check(self) -> None:
        queues = archive.PENDING(), archive.PENDING_AO(), archive.WORKING()
        places = [await self._store.lrange(queue) for queue in queues]
        opened = await self._store.smembers(archive.OPEN_JOBS("default"))
        for ident in self.idents:
            fields = await self._store.hgetall(archive.JOB(ident))
            state, counts = state_of(fields), [place.count(ident) for place in places]
            assert (await self._jobs.record(RunId(f"{ident}-{fields['run']}"))).state is state
            assert (ident in opened) == (state not in ENDED)
            assert sum(counts) == (state not in ENDED)
            assert counts[-1] == (state is JobState.RUNNING)
            assert (await self._store.ttl_ms(archive.JOB(ident)) > 0) == (state in ENDED)
            if state is not JobState.RUNNING:
                assert not await self._store.exists(lease_of(ident))
            assert int(fields["settings_age"]) >= self._ages.get(ident, 0)
            self._ages[ident] = int(fields["settings_age"])


@pytest.mark.parametrize("seed", range(4))
async def test_a_job_is_in_exactly_one_place(store: Store, seed: int) -> None:
    herd = Herd(store, seed)

    for _ in range(STEPS):
        await herd.step()
        await herd.check()

    assert await take_census(store) == []
    ends = [archive.JOBS_COMPLETED(), archive.JOBS_ABORTED(), archive.JOBS_FAILED()]
    counted = sum([int(await store.get(key) or 0) for key in ends])
    runs = await store.zrange(archive.ALL_RUNS())
    states = [(await Jobs(store).record(RunId(run))).state for run in runs]
    assert counted == len([state for state in states if state in ENDED]) > 10
