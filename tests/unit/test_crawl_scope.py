"""Which URLs a crawl fetches: exactly those of its scope, in each mode."""

import asyncio
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from protego import Protego

from processes import helpers
from remuda.archive import matching
from remuda.archive.crawler.model import CrawlScope, CrawlSettings
from remuda.archive.crawler.visiting import LONG_DOCUMENT
from sites import FAST, HOSTS, Heard, Request, Site, answer, crawl, encode, order_for, responses_in, serving

HOME, OTHER, THIRD = HOSTS


def small_web() -> Site:
    """A site with a directory, a page offsite with a picture, and a page two hops away."""
    site = Site()
    site.page("/", "/dir/", "/up.html")
    site.page("/up.html")
    site.page("/dir/", "one.html", "/up.html")
    off = f'<a href="//{OTHER}:PORT/off.html">off</a>'
    site.add("/dir/one.html", answer('<img src="/picture.png"><a href="two.html">two</a>' + off))
    site.page("/dir/two.html", "/dir/")
    site.add("/picture.png", answer(b"\x89PNG picture", kind="image/png"))
    far = f'<a href="/far.html">far</a><a href="//{THIRD}:PORT/x.html">x</a>'
    site.add("/off.html", answer('<title>off</title><img src="off.png">' + far), OTHER)
    site.add("/off.png", answer(b"\x89PNG off", kind="image/png"), OTHER)
    site.page("/far.html", host=OTHER)
    site.page("/x.html", host=THIRD)
    return site


async def captured(
    directory: Path, start: str, settings: CrawlSettings = FAST, **options: object
) -> set[str]:
    """What a crawl of the small web holds, as `host-number/path`."""
    site = small_web()
    async with serving(site):
        for key, page in list(site._pages.items()):
            if isinstance(page, bytes) and b"PORT" in page:
                body = page.partition(b"\r\n\r\n")[2].replace(b"PORT", str(site.port).encode())
                site.add(key[1], answer(body), key[0])
        await crawl(order_for(site.url(start), **options), directory, settings=settings)
        found = responses_in(directory)
        for url, record in found.items():
            if not record.block.startswith(b"HTTP/1.1 404"):
                assert record.block == site.sent(url)
    return {url.removeprefix("http://127.0.0.").replace(f":{site.port}", "") for url in found}


SITE = {"1/dir/", "1/dir/one.html", "1/dir/two.html", "1/picture.png"}
OFFSITE = {"2/off.html", "2/off.png"}


async def test_a_recursive_crawl_stays_below_its_directory_and_goes_one_hop_offsite(tmp_path: Path) -> None:
    assert await captured(tmp_path, "/dir/") == SITE | OFFSITE


async def test_links_to_another_port_are_followed(tmp_path: Path) -> None:
    site, other = Site(), Site()
    for path in ("/dir/one", "/up"):
        site.page(path)
    other.page("/dir/far")
    other.page("/near", "/dir/far")
    async with serving(site), serving(other):
        site.page("/dir/", site.url("/dir/one"), site.url("/up"), other.url("/near"))
        await crawl(order_for(site.url("/dir/")), tmp_path)

        assert set(responses_in(tmp_path)) == {
            *(site.url("/dir/"), site.url("/dir/one")),
            *(other.url("/near"), other.url("/dir/far")),
        }


async def test_without_offsite_links_only_requisites_come_from_elsewhere(tmp_path: Path) -> None:
    settings = CrawlSettings(0, 0, 3, offsite_links=False)

    assert await captured(tmp_path, "/dir/", settings) == SITE


async def test_a_shallow_crawl_takes_the_page_and_its_requisites(tmp_path: Path) -> None:
    assert await captured(tmp_path, "/dir/one.html", depth=0) == {"1/dir/one.html", "1/picture.png"}


async def test_a_depth_counts_links_from_the_start(tmp_path: Path) -> None:
    assert await captured(tmp_path, "/dir/", depth=1) == {"1/dir/", "1/dir/one.html", "1/picture.png"}


async def test_the_scope_host_takes_pages_above_the_start(tmp_path: Path) -> None:
    found = await captured(tmp_path, "/dir/", scope=CrawlScope.HOST)

    assert found == SITE | OFFSITE | {"1/up.html"}


async def test_the_scope_prefix_is_left_by_one_hop_only(tmp_path: Path) -> None:
    found = await captured(tmp_path, "/dir/", scope=CrawlScope.PREFIX)

    assert found == SITE | OFFSITE | {"1/up.html"}


async def test_without_requisites_no_picture_is_fetched(tmp_path: Path) -> None:
    assert await captured(tmp_path, "/dir/", page_requisites=False) == SITE - {"1/picture.png"} | {
        "2/off.html"
    }


async def test_sitemaps_and_robots_are_read_from_the_root_only(tmp_path: Path) -> None:
    site = Site()
    site.page("/")
    site.page("/dir/")
    site.page("/hidden.html")
    site.page("/news.html")
    async with serving(site):
        site.add("/robots.txt", answer(f"Sitemap: {site.url('/maps/index.xml')}\n", kind="text/plain"))
        site.add("/sitemap.xml", answer(_urlset(site.url("/hidden.html")), kind="application/xml"))
        index = f"<sitemapindex><sitemap><loc>{site.url('/maps/news.xml')}</loc></sitemap></sitemapindex>"
        site.add("/maps/index.xml", answer(index, kind="application/xml", coding="gzip"))
        site.add("/maps/news.xml", answer(_urlset(site.url("/news.html")), kind="application/xml"))
        whole = await crawl(order_for(site.url(), sitemaps=True), tmp_path / "root")
        assert set(responses_in(tmp_path / "root")) == {
            site.url(path)
            for path in (
                *("/", "/robots.txt", "/sitemap.xml", "/maps/index.xml", "/maps/news.xml"),
                *("/hidden.html", "/news.html"),
            )
        }
        assert whole.counts.queued == whole.counts.finished == 7

        await crawl(order_for(site.url("/dir/"), sitemaps=True), tmp_path / "below")
        assert set(responses_in(tmp_path / "below")) == {site.url("/dir/")}


async def test_the_last_page_of_a_long_sitemap_is_found_however_it_is_compressed(tmp_path: Path) -> None:
    site = Site()
    site.page("/")
    for path in ("/coded", "/packed"):
        site.page(path)
    async with serving(site):
        # Its other links lead nowhere.
        coded, packed = (
            _urlset(*["ftp://a.example/"] * (LONG_DOCUMENT // 20), site.url(path))
            for path in ("/coded", "/packed")
        )
        site.add("/sitemap.xml", answer(coded, kind="application/xml", coding="br"))
        robots = f"Sitemap: {site.url('/more.xml.gz')}\n"
        site.add("/robots.txt", answer(robots, kind="text/plain"))
        site.add("/more.xml.gz", answer(encode(packed.encode(), "gzip"), kind="application/x-gzip"))

        await crawl(order_for(site.url(), sitemaps=True), tmp_path)

        assert {site.url("/coded"), site.url("/packed")} < set(responses_in(tmp_path))


def _urlset(*urls: str) -> str:
    locations = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{locations}</urlset>'


async def test_robots_are_obeyed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/open.html", "/closed/page.html")
    site.page("/open.html")
    site.page("/closed/page.html")
    site.add("/robots.txt", answer("User-agent: *\nDisallow: /closed/\n", kind="text/plain"))
    async with serving(site):
        await crawl(order_for(site.url(), obey_robots=True), tmp_path / "obedient")
        assert set(responses_in(tmp_path / "obedient")) == set(
            map(site.url, ("/", "/open.html", "/robots.txt"))
        )

        await crawl(order_for(site.url()), tmp_path / "free")
        assert set(responses_in(tmp_path / "free")) == set(
            map(site.url, ("/", "/open.html", "/closed/page.html"))
        )


async def test_a_long_robots_txt_is_read_and_asked_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.page("/", "/open.html", "/closed/page.html")
    site.page("/open.html")
    rules = "".join(f"Disallow: *ab{number}\n" for number in range(20_000))
    site.add("/robots.txt", answer(f"User-agent: *\nDisallow: /closed/\n{rules}", kind="text/plain"))
    threads: list[threading.Thread] = []

    def noting(work: Any) -> Any:
        def noted(*args: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*args)

        return noted

    for name in ("parse", "can_fetch"):
        monkeypatch.setattr(Protego, name, noting(getattr(Protego, name)))
    async with serving(site):
        await crawl(order_for(site.url(), obey_robots=True), tmp_path)

    assert set(responses_in(tmp_path)) == set(map(site.url, ("/", "/open.html", "/robots.txt")))
    assert len(threads) == 4
    assert threading.main_thread() not in threads


def test_a_rule_with_many_asterisks_takes_no_time() -> None:
    began = time.thread_time()

    assert Protego.parse(f"User-agent: *\nDisallow: /{'*a' * 8}!\n").can_fetch(
        f"http://x.example/{'a' * 120}", "us"
    )

    assert time.thread_time() - began < 2.0


CLOSED = answer("User-agent: *\nDisallow: /closed/\n", kind="text/plain")


def _site_with_robots() -> Site:
    site = Site()
    site.page("/", "/closed/page.html")
    site.page("/closed/page.html")
    return site


@pytest.mark.parametrize(("hops", "is_obeyed"), [(1, True), (5, True), (6, False)])
async def test_redirects_of_robots_are_followed_five_times_and_each_is_recorded(
    tmp_path: Path, hops: int, is_obeyed: bool
) -> None:
    site = _site_with_robots()
    paths = ["/robots.txt", *(f"/closed/robots{number}" for number in range(1, hops)), "/closed/rules"]
    for path, target in pairwise(paths):
        site.add(path, answer(status="302 Found", fields=[f"Location: {target}"]))
    site.add("/closed/rules", CLOSED)

    async with serving(site):
        result = await crawl(order_for(site.url(), obey_robots=True), tmp_path)

    followed = paths if is_obeyed else paths[:6]
    pages = ["/"] if is_obeyed else ["/", "/closed/page.html"]
    assert {*map(site.url, followed + pages)} <= set(responses_in(tmp_path))
    assert (site.url("/closed/page.html") in responses_in(tmp_path)) is not is_obeyed
    assert max(site.asked.values()) == 1
    assert result.counts.queued == result.counts.finished


async def test_robots_on_another_host_count_for_the_host_that_redirects_there(tmp_path: Path) -> None:
    site = _site_with_robots()
    site.add("/rules", CLOSED, OTHER)

    async with serving(site):
        target = site.url("/rules", OTHER)
        site.add("/robots.txt", answer(status="301 Moved", fields=[f"Location: {target}"]))
        result = await crawl(order_for(site.url(), obey_robots=True), tmp_path)

    assert set(responses_in(tmp_path)) == {site.url("/"), site.url("/robots.txt"), target}
    assert result.counts.queued == result.counts.finished == 4


@pytest.mark.parametrize(
    "location", ["/robots.txt", "/second", "mailto:a@b", "http://127.0.0.1:1/robots.txt"]
)
async def test_robots_that_redirect_nowhere_forbid_nothing(tmp_path: Path, location: str) -> None:
    site = _site_with_robots()
    site.add("/robots.txt", answer(status="302 Found", fields=[f"Location: {location}"]))
    site.add("/second", answer(status="302 Found", fields=["Location: /robots.txt"]))

    async with serving(site):
        result = await crawl(order_for(site.url(), obey_robots=True, sitemaps=True), tmp_path)

    assert site.url("/closed/page.html") in responses_in(tmp_path)
    assert max(site.asked.values()) == 1
    assert result.counts.queued == result.counts.finished


async def test_a_page_that_robots_redirect_to_is_archived_once_with_its_links(tmp_path: Path) -> None:
    site = _site_with_robots()
    site.add("/robots.txt", answer(status="302 Found", fields=["Location: /"]))

    async with serving(site):
        result = await crawl(order_for(site.url(), obey_robots=True, sitemaps=True), tmp_path)

    found = {site.url(path) for path in ("/", "/closed/page.html", "/robots.txt", "/sitemap.xml")}
    assert set(responses_in(tmp_path)) == found
    assert max(site.asked.values()) == 1
    assert result.counts.queued == result.counts.finished == 4


async def test_robots_that_a_failing_server_hides_forbid_everything(tmp_path: Path) -> None:
    site = _site_with_robots()
    site.add("/robots.txt", answer(status="302 Found", fields=["Location: /rules"]))
    site.add("/rules", answer(status="500 Internal Server Error"))

    async with serving(site):
        await crawl(order_for(site.url(), obey_robots=True), tmp_path)

    assert set(responses_in(tmp_path)) == {site.url("/robots.txt"), site.url("/rules")}


@pytest.mark.parametrize(("path", "hops"), [("/r0", 9), ("/self", 1)])
async def test_redirects_are_followed_so_far_and_no_farther(tmp_path: Path, path: str, hops: int) -> None:
    site = Site()
    for number in range(12):
        site.add(f"/r{number}", answer(status="302 Found", fields=[f"Location: r{number + 1}"]))
    site.add("/self", answer(status="301 Moved", fields=["Location: /self"]))
    async with serving(site):
        await crawl(order_for(site.url(path), depth=0), tmp_path)

    assert len(responses_in(tmp_path)) == hops
    assert max(site.asked.values()) == 1


async def test_a_reference_is_not_taken_for_a_known_url_that_it_looks_like(tmp_path: Path) -> None:
    site = Site()
    async with serving(site):
        # Appended to `http://127.0.0.1:PORT`, both look like a URL that is known by then.
        start = f"http://{HOME}:{site.port}"
        site.page("/", f"//{OTHER}:{site.port}/x")
        site.page("/x", host=OTHER)
        site.page(f"//{OTHER}:{site.port}/x")
        await crawl(order_for(site.url(), f"{start}//{OTHER}:{site.port}/x"), tmp_path)

    assert set(responses_in(tmp_path)) == {
        f"{start}/",
        f"{start}//{OTHER}:{site.port}/x",
        site.url("/x", OTHER),
    }


async def test_lines_of_a_url_file_that_are_no_urls_are_left_out(tmp_path: Path) -> None:
    site = Site()
    site.page("/a")
    heard = Heard()
    async with serving(site):
        lines = (
            site.url("/a"),
            "",
            "# comment",
            "ftp://127.0.0.1/",
            site.url("/a#again"),
            "file:///etc/passwd",
        )
        end = await crawl(order_for(*lines, depth=0), tmp_path, heard=heard)

    assert set(responses_in(tmp_path)) == {site.url("/a")}
    assert end.counts.queued == 1
    assert any(message.startswith("5 start URLs are left out") for message in heard.messages)


async def test_a_page_that_asks_for_its_cookie_first_is_captured(tmp_path: Path) -> None:
    site = Site()

    async def wall(request: Request, writer: asyncio.StreamWriter) -> None:
        fields = ["Set-Cookie: seen=1", "Location: /wall"]
        has_cookie = request.fields.get("cookie") == "seen=1"
        writer.write(answer("<p>inside") if has_cookie else answer(status="302 Found", fields=fields))

    site.add("/wall", wall)
    async with serving(site):
        await crawl(order_for(site.url("/wall")), tmp_path)

    assert b"inside" in responses_in(tmp_path)[site.url("/wall")].block


async def test_a_redirect_may_leave_the_scope(tmp_path: Path) -> None:
    site = Site()
    async with serving(site):
        target = site.url("/new/", OTHER)
        site.add("/", answer(status="301 Moved", fields=[f"Location: {target}"]))
        site.page("/new/", "/new/page.html", host=OTHER)
        settings = CrawlSettings(0, 0, 2, offsite_links=False)
        await crawl(order_for(site.url()), tmp_path, settings=settings)

    assert set(responses_in(tmp_path)) == {site.url(), target}


async def test_ignored_urls_are_reported_once_and_not_fetched(tmp_path: Path) -> None:
    site = Site()
    site.page("/", "/a/skip.html", "/b.html")
    site.page("/b.html", "/a/skip.html")
    heard = Heard()
    async with serving(site):
        settings = CrawlSettings(0, 0, 1, ignores=("[", r"skip\.html$", "{primary_netloc}/b"))
        await crawl(order_for(site.url()), tmp_path, settings=settings, heard=heard)

    assert set(responses_in(tmp_path)) == {site.url()}
    assert {(each.url, each.pattern, each.source) for each in heard.ignores} == {
        (site.url("/a/skip.html"), r"skip\.html$", "accept_url"),
        (site.url("/b.html"), "{primary_netloc}/b", "accept_url"),
    }
    assert any("'['" in message for message in heard.messages)


async def test_what_only_another_process_finds_out_is_ignored_when_its_turn_comes(tmp_path: Path) -> None:
    slow, repeated = "(?=q)q{0,1000}[^B-Z0-9_@!%&()*]*!!", r"/(\w+)/\1/\1/"
    long = "/" + "q" * 7000
    site = Site()
    site.page("/", long, "/a/a/a/", "/b.html")
    site.page(long)
    site.page("/b.html")
    heard = Heard()
    async with serving(site):
        settings = CrawlSettings(0, 0, 2, ignores=(slow, repeated))
        await crawl(order_for(site.url()), tmp_path, settings=settings, heard=heard)

    assert set(responses_in(tmp_path)) == set(map(site.url, ("/", long, "/b.html")))
    assert [(each.url, each.pattern, each.source) for each in heard.ignores] == [
        (site.url("/a/a/a/"), repeated, "handle_pre_response")
    ]
    assert heard.dropped_ignores == [slow]
    assert any(repr(slow) in message for message in heard.messages)
    assert helpers(matching) == []


async def test_traps_are_logged_and_left_unless_that_is_turned_off(tmp_path: Path) -> None:
    site = Site()
    # Each page is the same but for its own path, and leads one step deeper.
    page = (
        '<!doctype html><title>trap</title><p>The same text every time, long enough.</p><a href="{}">on</a>'
    )
    deep = "".join(f"/d{number}" for number in range(1, 6))
    for depth in range(1, 6):
        path = "".join(f"/d{number}" for number in range(1, depth + 1))
        site.add(path, answer(page.format(f"{path}/d{depth + 1}")))
    site.page("/", "/d1", "/x/x/x/x/x/y.html")
    site.page("/x/x/x/x/x/y.html")
    heard = Heard()
    async with serving(site):
        await crawl(order_for(site.url()), tmp_path / "on", heard=heard)
        assert site.url(deep) in responses_in(tmp_path / "on") or any(
            "DUPE" in each for each in heard.messages
        )
        assert site.url("/x/x/x/x/x/y.html") not in responses_in(tmp_path / "on")
        assert any(each.startswith("LOOP") for each in heard.messages)

        settings = CrawlSettings(0, 0, 2, skip_duplicate_pages=False)
        await crawl(order_for(site.url()), tmp_path / "off", settings=settings)
        assert {site.url(deep), site.url("/x/x/x/x/x/y.html")} <= set(responses_in(tmp_path / "off"))


def test_the_domain_covers_subdomains() -> None:
    from remuda.archive.crawler.scope import ScopeRules

    rules = ScopeRules(
        order_for("http://www.example.org/", scope=CrawlScope.DOMAIN), ["http://www.example.org/"]
    )

    assert rules.covers("http://a.b.example.org/", "a.b.example.org")
    assert rules.covers("http://example.org/", "example.org")
    assert not rules.covers("http://badexample.org/", "badexample.org")
