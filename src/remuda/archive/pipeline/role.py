"""The pipeline's role: takes jobs from the queues and runs them, as many at a time as it is told."""

import asyncio
import os
import socket
from collections.abc import Mapping

import psutil

from remuda.archive.artifacts import JobArtifacts
from remuda.archive.crawler.network import Network, check_proxy
from remuda.archive.jobs import HOST_GRACE, Jobs, queue_bell
from remuda.archive.model import candidate_queues
from remuda.archive.pipeline.leftovers import clear_leftover
from remuda.archive.pipeline.running import Running, Workplace
from remuda.archive.pipelines import PipelineMachine, Pipelines, identity_of, pipeline_key
from remuda.archive.recovery import find_leftovers
from remuda.archive.room import ArchiveConfig, archive_directory, nickname_of
from remuda.base import clock
from remuda.base.config import Config
from remuda.base.errors import Misconfigured, RemudaError, Unavailable
from remuda.base.ids import RoleId
from remuda.base.log import get_logger
from remuda.fleet.bell import look_at_rings
from remuda.fleet.role import ROLE_ID, Role
from remuda.fleet.tasks import Tasks, repeat
from remuda.keyspace import archive
from remuda.storage.directory import keep_storage_id
from remuda.storage.model import StorageId
from remuda.storage.room import storage_directory
from remuda.storage.writer import ArtifactWriter
from remuda.store import Store

log = get_logger(__name__)

BEAT_EVERY = 1.0
LOOK_EVERY = 2.0
"""Seconds; for a ring that got lost, and for jobs of other software."""
CLEAR_EVERY = 5.0
DISK_FULL = "A job has filled the disk"
"""The obstacle after that, for as long as the job is left to this machine. There may seem to be room again,
but taking the job at once would fetch the same pages again and again."""
NICENESS = 10
DRAIN = 15.0
"""Seconds for the crawls to stop at a place from which they can be resumed."""


class Pipeline(Role):
    """Runs jobs until it is told to leave; one that `remuda up` has started also leaves when it has none."""

    name = "pipeline"

    def __init__(self, store: Store, config: Config) -> None:
        super().__init__()
        self._is_on_demand = ROLE_ID in os.environ
        self.id = RoleId(os.environ.get(ROLE_ID) or self.id)
        self.key = pipeline_key(self.id)
        self._store = store
        self._options = config[ArchiveConfig]
        self._directory = archive_directory(config)
        self._storage = storage_directory(config)
        self._nickname = nickname_of(config)
        self._jobs = Jobs(store)
        self._pipelines = Pipelines(store)
        self._identity: Mapping[str, str] = {}
        self._place: Workplace | None = None
        self._running: dict[Running, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._obstacle = ""
        self._full_until = 0.0
        self._is_leaving = False
        self._is_clearing = False
        self._busy_at = clock.monotonic()
        self._free = asyncio.Event()

    # Its life

    async def start(self) -> None:
        storage_id = await asyncio.to_thread(self._prepare)
        self._identity = await asyncio.to_thread(identity_of, self.key, nickname=self._nickname)
        options = self._options
        writer = ArtifactWriter(
            self._store, JobArtifacts(self._store), storage=storage_id, directory=self._storage
        )
        network = Network(
            allow_private_addresses=options.allow_private_addresses, proxy=check_proxy(options.archive_proxy)
        )
        self._place = Workplace(
            store=self._store,
            pipeline=self.key,
            directory=self._directory,
            writer=writer,
            storage=storage_id,
            network=network,
            user_agent=options.archive_user_agent,
            operator=options.archive_operator,
            max_deaths=options.archive_deaths,
            announces=options.archive_announce,
        )
        await self._pipelines.enlist(self.key)
        await self._beat()
        if self._is_on_demand:
            lower_priority()

    def _prepare(self) -> StorageId:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(f"{self._directory} cannot be used for crawls: {error.strerror}") from error
        return keep_storage_id(self._storage)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            beats = repeat(self._beat, every=BEAT_EVERY, failure="pipeline does not beat")
            group.create_task(beats, name="beat of the pipeline")
            group.create_task(self._take_jobs(), name="take jobs")
            clearing = repeat(self._clear_leftovers, every=CLEAR_EVERY, failure="leftovers stay")
            group.create_task(clearing, name="clear leftovers")

    async def drain(self) -> None:
        """Takes no more jobs, and puts those that it runs back into their queues, to be resumed."""
        self._is_leaving = True
        for running in list(self._running):
            running.suspend()
        await self._tasks.finish()

    async def stop(self) -> None:
        self._tasks.cancel()
        await self._tasks.finish()
        try:
            await self._pipelines.withdraw(self.key)
        except Unavailable as error:
            log.warning("pipeline not withdrawn", pipeline=self.key, reason=error.message)

    # Its loops

    async def _beat(self) -> None:
        machine = await asyncio.to_thread(PipelineMachine.look, self._directory)
        self._obstacle = machine.find_lack(
            disk_megabytes=self._options.archive_min_free_megabytes,
            memory_megabytes=self._options.archive_min_memory_megabytes,
        )
        if not self._obstacle and clock.monotonic() < self._full_until:
            self._obstacle = DISK_FULL
        fields = {
            **self._identity,
            **machine.fields(),
            "status": "Stopping" if self._is_leaving else "Running",
            "jobs": str(len(self._running)),
            "concurrent": str(self._options.archive_concurrent),
            "obstacle": self._obstacle,
        }
        if await self._pipelines.beat(self.key, fields):
            self._is_leaving = True
        if self._running or self._is_clearing:
            self._busy_at = clock.monotonic()
        is_idle = clock.monotonic() - self._busy_at > self._options.archive_idle
        if not (self._running or self._is_clearing) and (
            self._is_leaving or (self._is_on_demand and is_idle)
        ):
            self.wants_to_leave.set()

    async def _clear_leftovers(self) -> None:
        assert self._place is not None
        for path, record in await find_leftovers(self._store, self._directory):
            self._is_clearing = True
            try:
                await clear_leftover(self._place, path, record)
            except (RemudaError, OSError) as error:
                log.warning("leftover stays", run=record.run, reason=str(error))
            finally:
                self._is_clearing = False
                self._busy_at = clock.monotonic()

    async def _take_jobs(self) -> None:
        with self._store.subscribe(queue_bell()) as rings:
            while True:
                self._free.clear()
                if len(self._running) >= self._options.archive_concurrent:
                    await self._free.wait()
                    continue
                await look_at_rings(rings, self._take_one, timeout=None, look_every=LOOK_EVERY)

    async def _take_one(self) -> bool | None:
        """Claims a job and starts it; None if there is none for this pipeline now."""
        if self._is_leaving or self._obstacle or self.wants_to_leave.is_set():
            return None
        if any(each.has_filled_disk for each in self._running):  # It is about to put its job back.
            return None
        try:
            options = self._options
            tags = await self._store.smembers(archive.JOB_TAGS())
            queues = candidate_queues(
                self._nickname,
                tags,
                takes_large=options.archive_large,
                only_shallow=options.archive_only_shallow,
            )
            claim = await self._jobs.claim(self.key, queues, host=socket.gethostname())
        except Unavailable as error:
            log.warning("no job taken", reason=error.message)
            return None
        if claim is None:
            return None
        log.info("job claimed", run=claim.run)
        assert self._place is not None
        self._busy_at = clock.monotonic()
        running = Running(self._place, claim)
        task = self._tasks.spawn(running.run(), name=f"run {claim.run}")
        self._running[running] = task
        task.add_done_callback(lambda _: self._forget(running))
        return True

    def _forget(self, running: Running) -> None:
        self._running.pop(running, None)
        if running.has_filled_disk:
            self._full_until, self._obstacle = clock.monotonic() + HOST_GRACE, DISK_FULL
        self._busy_at = clock.monotonic()
        self._free.set()


def lower_priority() -> None:
    """Lets every other process go first: a crawl must not slow down a session.

    Not SCHED_IDLE: on a machine whose browsers use all of the CPU, a pipeline would get so little of it that
    its jobs' leases run out.
    """
    try:
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)
    except (OSError, AttributeError) as error:
        log.info("priority not lowered", reason=str(error))
