"""What the sweeps of the archive clean up, and what they leave."""

import pytest

from jobs import claim_job, new_pipeline, queue_job
from remuda.archive.jobs import HERD, Jobs
from remuda.archive.pipelines import Pipelines
from remuda.archive.sweeps import ANNOUNCEMENTS_KEPT, archive_sweeps
from remuda.base import clock
from remuda.keyspace import archive
from remuda.store import Store


async def test_a_pipeline_that_was_killed_is_taken_off_the_list(store: Store) -> None:
    alive, dead, pipelines = new_pipeline(), new_pipeline(), Pipelines(store)
    await pipelines.enlist(alive)
    await pipelines.enlist(dead)
    await pipelines.beat(alive, {"id": alive})
    await store.sadd(archive.DRAINING_PIPELINES(), dead)

    done = await archive_sweeps(store)["pipelines"]()

    assert done["pipelines_purged"] == 1
    assert await pipelines.listed() == [alive]
    assert not await store.exists(archive.DRAINING_PIPELINES())


@pytest.mark.parametrize("prefix", ["", "fleet:"])
async def test_queues_of_other_software_are_found_and_empty_ones_forgotten(
    redis_url: str, prefix: str
) -> None:
    async with Store(redis_url, prefix=prefix) as store:
        await store.lpush(archive.PENDING_TAG("reddit"), "x")
        await store.send("LPUSH", f"{prefix}pending:not a tag", "x")
        await store.sadd(archive.JOB_TAGS(), "empty")

        done = await archive_sweeps(store)["job tags"]()

        assert (done["tags_found"], done["tags_forgotten"]) == (1, 1)
        assert await store.smembers(archive.JOB_TAGS()) == ["reddit"]


async def test_a_job_that_goes_back_to_its_queue_is_found_there_although_its_tag_was_forgotten(
    store: Store,
) -> None:
    record = await queue_job(store, pipeline="fast")
    claim = await claim_job(store, host="a-fast-one")
    assert (await archive_sweeps(store)["job tags"]())["tags_forgotten"] == 1

    assert await Jobs(store).requeue(record.run, asker=HERD)

    assert await claim_job(store, host="a-fast-one") == claim


async def test_announcements_are_kept_for_thirty_days(store: Store) -> None:
    now = clock.now()
    scores = {"old": now - ANNOUNCEMENTS_KEPT - 60, "new": now - 60}
    await store.zadd(archive.TWEETS_DONE(), scores)
    await store.zadd(archive.TWEETS_QUEUE(), scores)

    assert (await archive_sweeps(store)["announcements"]())["announcements_forgotten"] == 2

    assert await store.zrange(archive.TWEETS_DONE()) == ["new"]
