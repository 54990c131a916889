"""The settings of a job: every change has a higher age, is told, and is validated first."""

import pytest

from jobs import IDENT, job_fields, new_pipeline, queue_job, run_job
from remuda.archive.jobs import Jobs
from remuda.archive.model import MOST_IGNORES, Ident, JobSettings, JobState
from remuda.archive.settings import IgnoresChange, JobSettingsEditor, SettingsChange
from remuda.base.errors import InUse, InvalidArgument
from remuda.keyspace import archive
from remuda.store import Store

JOB = Ident(IDENT)


async def test_a_change_raises_the_age_and_is_published(store: Store) -> None:
    await queue_job(store)

    with store.subscribe(archive.JOB_SETTINGS(IDENT)) as messages:
        live = await JobSettingsEditor(store).change(
            JOB, SettingsChange(concurrency=8, delay_min=0, paused=True)
        )
        assert await messages.wait(5) == ["2"]

    assert live.age == 2
    assert live.settings == JobSettings(concurrency=8, delay_min=0, paused=True)
    job = await job_fields(store)
    changed = [job[name] for name in ("concurrency", "delay_min", "delay_max", "paused")]
    assert changed == ["8", "0", "375", "true"]


async def test_a_boolean_is_true_or_absent_as_in_the_original(store: Store) -> None:
    await queue_job(store)

    live = await JobSettingsEditor(store).change(
        JOB, SettingsChange(suppress_ignore_reports=False, user_agent="")
    )

    assert not live.settings.suppress_ignore_reports
    job = await job_fields(store)
    assert "suppress_ignore_reports" not in job
    assert job["user_agent"] == ""


async def test_a_delay_that_ends_before_it_begins_changes_nothing(store: Store) -> None:
    await queue_job(store)

    with pytest.raises(InvalidArgument, match="delay_min"):
        await JobSettingsEditor(store).change(JOB, SettingsChange(delay_min=500))

    assert (await JobSettingsEditor(store).read(JOB)).age == 1


async def test_the_settings_of_a_job_that_has_ended_stay(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)

    with pytest.raises(InUse, match="completed"):
        await JobSettingsEditor(store).change(JOB, SettingsChange(concurrency=8))
    with pytest.raises(InUse):
        await JobSettingsEditor(store).change_ignores(JOB, IgnoresChange(add=["x"]))


async def test_ignores_are_added_and_removed(store: Store) -> None:
    await queue_job(store)
    settings = JobSettingsEditor(store)
    before = set((await settings.read(JOB)).ignores)

    added = await settings.change_ignores(JOB, IgnoresChange(add=["/a/", "/a/", "/b/"], sets=["global"]))
    removed = await settings.change_ignores(JOB, IgnoresChange(remove=["/a/", "/never/"]))

    assert (added.added, removed.removed, removed.settings_age) == (2, 1, 3)
    assert set((await settings.read(JOB)).ignores) == before | {"/b/"}


async def test_a_wrong_pattern_is_refused_with_the_reason(store: Store) -> None:
    await queue_job(store)

    with pytest.raises(InvalidArgument):
        await JobSettingsEditor(store).change_ignores(JOB, IgnoresChange(add=["/good/", "(bad"]))

    assert "/good/" not in (await JobSettingsEditor(store).read(JOB)).ignores


async def test_a_job_has_a_limited_number_of_ignores(store: Store) -> None:
    await queue_job(store)

    with pytest.raises(InvalidArgument, match=str(MOST_IGNORES)):
        await JobSettingsEditor(store).change_ignores(
            JOB, IgnoresChange(add=[f"/{n}/" for n in range(MOST_IGNORES)])
        )


async def test_the_crawl_gets_seconds_and_the_default_user_agent(store: Store) -> None:
    await queue_job(store, settings=JobSettings(delay_min=100, delay_max=200, no_offsite_links=True))

    crawl = (await JobSettingsEditor(store).read(JOB)).for_crawl(user_agent="us")

    assert (crawl.delay_min, crawl.delay_max, crawl.user_agent) == (0.1, 0.2, "us")
    assert not crawl.offsite_links
    assert crawl.suppress_ignore_reports
