"""The frontier forgets nothing and hands out each URL once, over any number of openings."""

from pathlib import Path

import pytest

from remuda.archive.crawler.frontier import ClaimedUrl, Found, Frontier, UrlState
from remuda.archive.crawler.model import CrawlCounts


def found(number: int, host: str = "h") -> Found:
    return Found(f"http://{host}/{number}", host, 0, 0, 1, 0, 0)


def take_all(frontier: Frontier) -> list[ClaimedUrl]:
    claims = []
    for host in frontier.hosts():
        while claim := frontier.take(host):
            claims.append(claim)
    return claims


def test_each_url_is_handed_out_once_in_the_order_of_its_discovery(tmp_path: Path) -> None:
    frontier = Frontier(tmp_path / "f")
    frontier.add(map(found, range(600)))
    frontier.add(map(found, range(300, 900)))

    assert [claim.url for claim in take_all(frontier)] == [f"http://h/{number}" for number in range(900)]
    assert frontier.count_urls() == 900
    assert not take_all(frontier)
    frontier.close()


def test_known_urls_stay_known_when_memory_has_forgotten_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.archive.crawler.frontier._REMEMBERED", 10)
    frontier = Frontier(tmp_path / "f")
    for _ in range(2):
        for number in range(100):
            frontier.add([found(number)])

    assert not frontier.is_known("http://h/1")
    assert len(take_all(frontier)) == 100
    frontier.close()


def test_what_was_committed_is_there_after_a_kill_and_the_rest_is_not(tmp_path: Path) -> None:
    frontier = Frontier(tmp_path / "f")
    frontier.add(map(found, range(10)))
    first, second, third, *_ = take_all(frontier)
    frontier.finish(first, UrlState.DONE, status=200, fetched=1.0, file=0, position=100)
    frontier.retry(second, tries=1, due=50.0)
    frontier.add_payload(b"digest", first)
    frontier.write_note("name", b"x")
    frontier.commit(CrawlCounts(queued=10), {"warc": 200})
    assert [host.name for host in frontier.take_due(60.0)] == ["h"]
    frontier.finish(third, UrlState.DONE)
    frontier.add([found(99)])
    frontier.close()

    again = Frontier(tmp_path / "f")
    assert again.read_note("name") == b"x"
    assert again.same_payload(b"digest") == (first.url, 1.0)
    assert again.retrying == 1
    assert again.next_due() == 50.0
    assert {claim.url for claim in take_all(again)} == {f"http://h/{number}" for number in range(2, 10)}
    (host,) = again.take_due(60.0)
    claim = again.take(host)
    assert claim is not None
    assert (claim.url, claim.tries) == (second.url, 1)
    again.close()


def test_lost_records_are_fetched_again(tmp_path: Path) -> None:
    frontier = Frontier(tmp_path / "f")
    frontier.add(map(found, range(6)))
    for claim in take_all(frontier):
        frontier.finish(
            claim, UrlState.DONE, status=200, fetched=1.0, file=claim.id // 3, position=claim.id * 10
        )
        frontier.add_payload(claim.url.encode(), claim)
    frontier.commit(CrawlCounts(), {})

    assert frontier.reset_beyond(1, 40) == 3
    frontier.commit(CrawlCounts(), {})
    frontier.close()
    again = Frontier(tmp_path / "f")
    assert [claim.id for claim in take_all(again)] == [4, 5, 6]
    assert again.same_payload(b"http://h/2") is not None
    assert again.same_payload(b"http://h/3") is None
    again.close()


def test_a_frontier_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    import sqlite3

    frontier = Frontier(tmp_path / "f")
    with pytest.raises(sqlite3.OperationalError):
        Frontier(tmp_path / "f", patience=0.0)
    frontier.close()
