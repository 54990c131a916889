"""A real browser on the jobs of the dashboard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from jobs import claim_job, new_pipeline, queue_job
from pages import Page
from remuda.archive.crawler.model import CrawlCounts, DownloadEntry
from remuda.archive.jobs import Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import Ident, JobState
from remuda.archive.records import Progress
from remuda.archive.settings import JobSettingsEditor, SettingsChange
from remuda.store import Store
from waiting import eventually
from web_states import front_of, new_api


@asynccontextmanager
async def jobs_page(store: Store, page: Page) -> AsyncIterator[None]:
    """The page of jobs, open."""
    async with front_of(new_api(store), store) as url:
        await page.open(f"{url}/#jobs")
        await page.sees("Archive a site", at="#new-job")
        yield
        await page.open("about:blank")


async def test_a_job_is_asked_for_and_followed_to_its_end(store: Store, page: Page) -> None:
    pipeline = new_pipeline()
    async with jobs_page(store, page):
        await page.fills("input[name=url]", "http://www.example.com/")
        await page.fills("input[name=note]", "closing <b>soon</b>")
        await page.clicks("#new-job button")
        await page.sees("queued", at="#jobs .state")
        await page.sees("closing <b>soon</b>", at="#jobs")

        claim = await claim_job(store, pipeline)
        assert claim is not None
        counts = msgspec.json.encode(CrawlCounts(queued=9, finished=4, bytes=4321, r2xx=4)).decode()
        await Jobs(store).beat(
            claim, pipeline, Progress({}, {"counts": counts, "droppedIgnores": '["(a<b>*)*c"]'})
        )
        entry = DownloadEntry(1.0, "http://www.example.com/page", 404, "OK", False, True)
        await Logs(store).append(claim.run, [msgspec.json.encode(entry)])
        await page.sees("running", at="#jobs .state")
        await page.sees("4 of 9 done", at="aside")
        await page.sees("1 ignore pattern not used any more: (a<b>*)*c", at="aside dl")
        await page.sees("404 http://www.example.com/page", at="aside .lines .warning")

        await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)
        await page.sees("completed", at="#ended-jobs .state")
        await page.sees("None waits or runs.", at="#jobs")
        assert await page.complaints() == []
        assert await page.violations_in_all_looks() == {}


async def test_settings_are_changed_and_what_others_change_is_shown(store: Store, page: Page) -> None:
    record = await queue_job(store)
    ident, settings = Ident(record.ident), JobSettingsEditor(store)

    async def is_seven() -> bool:
        return (await settings.read(ident)).settings.concurrency == 7

    async with jobs_page(store, page):
        await page.clicks("#jobs tbody tr")
        await page.sees("Settings", at="aside")
        await page.fills("input[name=concurrency]", "7")
        await page.clicks(".settings button")
        await eventually(is_seven, 30)

        await settings.change(ident, SettingsChange(concurrency=9))
        value = "return document.querySelector('input[name=concurrency]')?.value === '9'"
        await eventually(lambda: page.run(value), 30)

        await page.clicks("aside .line button:not(.close)")
        await page.sees("paused", at="#jobs .state")
        await page.clicks("aside .danger")
        await page.sees("Really abort?", at="aside .danger")
        await page.clicks("aside .danger")
        await page.sees("aborted", at="#ended-jobs .state")
        assert await page.complaints() == []


async def test_what_is_typed_stays_while_the_settings_change(store: Store, page: Page) -> None:
    record = await queue_job(store)
    ident, settings = Ident(record.ident), JobSettingsEditor(store)
    value = "return document.querySelector(`input[name=${arguments[0]}]`)?.value"

    async with jobs_page(store, page):
        await page.clicks("#jobs tbody tr")
        await page.sees("Settings", at="aside")
        await page.run("window.form = document.querySelector('.settings')")
        for number in ("7", "8", "9"):
            await page.fills("input[name=concurrency]", number)
            await settings.change(ident, SettingsChange(delay_max=1000 + int(number)))

            async def is_shown(delay: str = f"100{number}") -> bool:
                return bool(await page.run(value, "delayMax") == delay)

            await eventually(is_shown, 30)
            assert await page.run(value, "concurrency") == number

            await page.clicks(".settings button")

            async def is_stored(wanted: int = int(number)) -> bool:
                return (await settings.read(ident)).settings.concurrency == wanted

            await eventually(is_stored, 30)
            assert await page.run(value, "concurrency") == number
        assert await page.run("return window.form === document.querySelector('.settings')")


async def test_what_is_typed_after_it_was_sent_stays(store: Store, page: Page) -> None:
    record = await queue_job(store)
    ident, settings = Ident(record.ident), JobSettingsEditor(store)
    send_and_type = """
        const [field, box] = document.querySelectorAll("input[name=concurrency], input[name=offsite]")
        field.value = "7"
        document.querySelector(".settings button").click()
        field.value = "8"
        box.checked = !box.checked
    """
    typed = """
        const [field, box] = document.querySelectorAll("input[name=concurrency], input[name=offsite]")
        return [field.value, field.defaultValue, box.checked, box.defaultChecked]
    """

    async with jobs_page(store, page):
        await page.clicks("#jobs tbody tr")
        await page.sees("Settings", at="aside")
        follows = not (await settings.read(ident)).settings.no_offsite_links
        await page.run(send_and_type)

        async def is_accepted() -> bool:
            return bool((await page.run(typed))[1] == "7")

        await eventually(is_accepted, 30)
        await settings.change(ident, SettingsChange(delay_max=1234))
        shown = "return document.querySelector('input[name=delayMax]').value === '1234'"
        await eventually(lambda: page.run(shown), 30)
        assert await page.run(typed) == ["8", "7", not follows, follows]
        assert (await settings.read(ident)).settings.concurrency == 7
