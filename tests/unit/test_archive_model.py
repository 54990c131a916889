"""The life of a job and what follows from its fields, without Redis."""

from pathlib import Path

import pytest

from remuda.archive.agents import USER_AGENTS, find_user_agent
from remuda.archive.crawler.model import CrawlCounts, EndReason
from remuda.archive.model import (
    ENDED,
    MOVES,
    JobSettings,
    JobState,
    candidate_queues,
    job_ident,
    legal_origins,
    queue_of,
    read_ident,
    state_of,
)
from remuda.archive.pipeline.delivery import RunEnding
from remuda.archive.pipeline.running import judge
from remuda.archive.pipelines import PipelineMachine
from remuda.base.errors import InvalidArgument
from remuda.cli.archive import archive_site, follow_to_end, read_delay, size
from remuda.cli.front_door import HerdAddress


@pytest.mark.parametrize(
    ("url", "ident"),
    [
        ("http://artscene.textfiles.com/litpacks/", "43z7a11vo6of3a7i173441dtc"),
        ("http://store.steampowered.com/livingroom", "1q2qydhkeh3gfnrcxuf6py70b"),
        ("https://www.example.com/some-file.txt", "byu50bzfdbnlyl6mrgn6dd24h"),
        ("http://www.example.com", "eed6rdmqqi18ps2eqfatkjyld"),
        ("http://www.example.com/", "eed6rdmqqi18ps2eqfatkjyld"),
        ("ftp://ftp.example.com/pub/", "0t96vs2vxkvxyg5tj483a47i9"),
    ],
)
def test_the_ident_of_a_url_is_the_originals(url: str, ident: str) -> None:
    assert job_ident(url, "default") == ident
    assert job_ident(url, "ours") not in (ident, job_ident(url, "theirs"))
    assert read_ident(ident.lstrip("0")) == ident


@pytest.mark.parametrize("text", ["", "../x", "A" * 25, "a b", "x" * 65])
def test_what_cannot_be_an_ident_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_ident(text)


def test_the_same_urls_are_the_same_job() -> None:
    urls = ["http://a.example/", "http://b.example/", "http://c.example/"]
    idents = {job_ident(urls[0], "default", urls[1:count]) for count in (1, 2, 3)}

    assert len(idents) == 3
    assert job_ident(urls[0], "default", urls[1:]) in idents
    assert job_ident(urls[0], "ours", urls[1:]) not in idents


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, JobState.QUEUED),
        ({"started_at": "1.5"}, JobState.RUNNING),
        ({"started_at": "1.5", "aborted": "true"}, JobState.RUNNING),
        ({"started_at": "1.5", "finished_at": "2"}, JobState.COMPLETED),
        ({"finished_at": "2", "aborted": "true"}, JobState.ABORTED),
        ({"finished_at": "2", "failed": "true"}, JobState.FAILED),
    ],
)
def test_the_state_follows_from_the_documented_fields(fields: dict[str, str], state: JobState) -> None:
    assert state_of(fields) is state


def test_every_state_has_its_moves_and_only_a_new_run_leaves_an_end() -> None:
    assert set(MOVES) == set(JobState)
    for state in ENDED:
        assert MOVES[state] == {JobState.QUEUED}
    assert legal_origins(JobState.COMPLETED) == ",running,"
    assert legal_origins(JobState.QUEUED) == ",running,"


@pytest.mark.parametrize(
    ("nickname", "options", "queues"),
    [
        ("ovhca1-47", {}, ["pending:ovhca1-47", "pending-ao", "pending"]),
        ("ovhca1-reddit-over18-55", {}, ["pending:reddit-over18", "pending-ao", "pending"]),
        ("ovhca1-47", {"only_shallow": True}, ["pending-ao"]),
        ("x", {"takes_large": True}, ["pending-ao", "pending-large", "pending"]),
    ],
)
def test_a_pipeline_takes_jobs_of_the_queues_that_are_for_it(
    nickname: str, options: dict[str, bool], queues: list[str]
) -> None:
    tags = ["internetcentrum", "reddit-over18", "ovhca1-47"]

    assert list(candidate_queues(nickname, tags, **options)) == queues


def test_a_large_job_can_neither_be_shallow_nor_targeted() -> None:
    assert queue_of("inf", is_large=True) == "pending-large"
    for wish in ({"depth": "shallow"}, {"depth": "inf", "tag": "x"}):
        with pytest.raises(InvalidArgument):
            queue_of(**wish, is_large=True)


def test_settings_survive_what_other_software_writes() -> None:
    wrong = {"delay_min": "500", "delay_max": "10", "concurrency": "0", "user_agent": "x"}

    settings = JobSettings.read(wrong)

    assert (settings.delay_min, settings.delay_max, settings.concurrency) == (500, 500, 3)
    assert JobSettings.read(JobSettings().fields()) == JobSettings()


@pytest.mark.parametrize("agent", ["²", "9" * 5000, "7"])
def test_a_user_agent_of_digits_is_one(agent: str) -> None:
    assert JobSettings.read({"user_agent": agent}).user_agent == agent


def test_a_user_agent_is_an_alias_or_itself() -> None:
    assert find_user_agent(" Firefox ") == USER_AGENTS["firefox"]
    assert find_user_agent("me/1.0") == "me/1.0"
    assert find_user_agent("") == ""


@pytest.mark.parametrize(
    ("reason", "counts", "failure", "judgement"),
    [
        (EndReason.FINISHED, CrawlCounts(r2xx=1), "", (JobState.COMPLETED, "")),
        (EndReason.FINISHED, CrawlCounts(r4xx=1), "x", (JobState.COMPLETED, "")),
        (EndReason.FINISHED, CrawlCounts(runk=1), "refused", (JobState.FAILED, "refused")),
        (EndReason.FINISHED, CrawlCounts(), "", (JobState.FAILED, "No URL was fetched")),
        (EndReason.ABORTED, CrawlCounts(), "x", (JobState.ABORTED, "")),
    ],
)
def test_a_crawl_without_any_response_has_failed(
    reason: EndReason, counts: CrawlCounts, failure: str, judgement: tuple[JobState, str]
) -> None:
    assert judge(RunEnding(reason, "", counts, []), failure) == judgement


def test_a_machine_without_room_says_what_it_lacks() -> None:
    machine = PipelineMachine(99.0, 5_000_000, 50.0, 3_000_000, (0.5, 0.5, 0.5))

    assert machine.find_lack(disk_megabytes=5, memory_megabytes=3) == ""
    assert "low disk space: 5 MB" in machine.find_lack(disk_megabytes=6, memory_megabytes=0)
    assert "low memory: 3 MB" in machine.find_lack(disk_megabytes=0, memory_megabytes=4)


def test_a_delay_is_one_number_or_two() -> None:
    assert read_delay(None) == {}
    assert read_delay("500") == {"delayMin": 500, "delayMax": 500}
    assert read_delay("250-375") == {"delayMin": 250, "delayMax": 375}
    for text in ("", "-1", "500.5", "10000000", "1-2-3"):
        with pytest.raises(InvalidArgument):
            read_delay(text)


def test_sizes_are_said_as_people_say_them() -> None:
    assert [size(each) for each in (0, 999, 1500, 2_000_000, 3_100_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.0 MB",
        "3.1 GB",
    ]


def test_a_directory_for_files_is_checked_before_a_job_is_started(tmp_path: Path) -> None:
    herd = HerdAddress.parse("http://127.0.0.1:1")
    (tmp_path / "file").touch()

    with pytest.raises(InvalidArgument, match="No files can be written to"):
        archive_site(herd, {}, detach=False, out=tmp_path / "file" / "out")
    with pytest.raises(InvalidArgument, match="No files can be written to"):
        follow_to_end(herd, "ident", out=tmp_path / "file")
    with pytest.raises(InvalidArgument, match="--detach"):
        archive_site(herd, {}, detach=True, out=tmp_path)
