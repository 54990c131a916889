"""Every kind of link in every kind of document."""

import time

import pytest

from remuda.archive.crawler.decoding import charset_of, decode_content
from remuda.archive.crawler.duplicates import fingerprint, is_loop
from remuda.archive.crawler.feeds import MAX_DECLARATIONS, MAX_EXPANSION, links_of_xml
from remuda.archive.crawler.links import (
    MAX_CSS_TOKENS,
    MAX_NESTING,
    extract,
    links_of_headers,
    urls_of_css,
    urls_of_srcset,
)
from remuda.archive.urls import MAX_REFERENCE, Base
from sites import encode


@pytest.mark.parametrize(
    ("html", "links", "requisites"),
    [
        ('<a href="a b.html">', {"a b.html"}, set()),
        ('<map><area href="x">', {"x"}, set()),
        ('<img src="i" longdesc="l">', {"l"}, {"i"}),
        ("<script src=s></script>", set(), {"s"}),
        ("<iframe src=f></iframe>", set(), {"f"}),
        ("<video poster=p><source src=v><track src=t></video>", set(), {"p", "v", "t"}),
        ("<object data=o></object><embed src=e>", set(), {"o", "e"}),
        ("<body background=b><table background=t>", set(), {"b", "t"}),
        ('<svg><image xlink:href="x"/><use href="u.svg#i"/></svg>', set(), {"x", "u.svg#i"}),
        (
            '<img srcset="a.png 1x, b,1.png 2x"><link rel=preload imagesrcset="c.png 300w">',
            set(),
            {"a.png", "b,1.png", "c.png"},
        ),
        ('<link rel="stylesheet" href="s"><link rel="shortcut icon" href="i">', set(), {"s", "i"}),
        ('<link rel="next" href="n"><link rel="dns-prefetch" href="//cdn">', {"n"}, set()),
        ('<meta http-equiv="Refresh" content="0; URL=\'r\'">', {"r"}, set()),
        (
            '<meta property="og:image" content="/o.png"><meta property="og:url" content="/o">',
            {"/o"},
            {"/o.png"},
        ),
        ('<img data-src="/l.png" data-srcset="a 1x,b 2x">', set(), {"/l.png", "a", "b"}),
        ('<div data-href="/d" data-count="5" data-url="no url"></div>', {"/d"}, set()),
        ("<p style=\"background:url('q.png')\">", set(), {"q.png"}),
        ("<style>@import 'i.css'; /* url(no) */ a { b: url( u.png ) }</style>", set(), {"i.css", "u.png"}),
        ('<form action="/get"></form><form action="/post" method=POST></form>', {"/get"}, set()),
        ("<noscript><img src=n></noscript>", set(), {"n"}),
        (
            '<script type="application/ld+json">{"@context": "https://schema.org", "url": "http://x/u", '
            '"image": {"url": "http://x/i.png"}}</script>',
            {"http://x/u"},
            {"http://x/i.png"},
        ),
        ('<script type="application/ld+json">{broken</script>', set(), set()),
        ("<script>var a = '<a href=no>';</script><!-- <a href=no> -->", set(), set()),
        ('<a href="unclosed><b', set(), set()),
        ("<blockquote cite=c>", {"c"}, set()),
        ("<ins cite=i>a</ins><del cite=d>b</del>", {"i", "d"}, set()),
        ("<table><tr background=r><th background=h>", set(), {"r", "h"}),
        ("<svg><a xlink:href=x>a</a></svg>", {"x"}, set()),
        ("<TEMPLATE id=t><a href=t><img src=i></a></TEMPLATE>", {"t"}, {"i"}),
        ("<iframe srcdoc=\"<a href=d><p style='background:url(q.png)'>\"></iframe>", {"d"}, {"q.png"}),
        ("<object><param name=Movie value=m.swf><param name=loop value=no></object>", set(), {"m.swf"}),
        ("<object><param name=x value=r valuetype=ref></object>", set(), {"r"}),
        (
            '<applet codebase="java/" code=A.class archive="a.jar, b.jar"></applet>',
            set(),
            {"java/A.class", "java/a.jar", "java/b.jar"},
        ),
        ("<applet code=Game></applet>", set(), set()),
        ("<p style=\"background: IMAGE-SET('q.png' 1x)\">", set(), {"q.png"}),
        (
            '<script type="application/ld+json">{"url": "/u", "logo": "/l.png", "sku": "/no"}</script>',
            {"/u"},
            {"/l.png"},
        ),
    ],
)
def test_the_links_of_html(html: str, links: set[str], requisites: set[str]) -> None:
    found = extract(html.encode(), "text/html; charset=utf-8", path="/")

    assert (found.links, found.requisites) == (links, requisites)


def test_frames_within_frames_are_read_one_level_deep() -> None:
    html = b"<iframe/srcdoc=" * 300_000 + b"<a/href=no>"

    assert extract(html, "text/html", path="/").links == set()


def test_base_and_title_are_read() -> None:
    html = b"<base href='/b/'><base href=no><title> A\n title </title><svg><title>no</title></svg>"
    found = extract(html, "text/html", path="/")

    assert (found.base, found.title) == ("/b/", "A title")


def test_a_title_may_have_attributes() -> None:
    assert extract(b"<title lang=en>A title</title>", "text/html", path="/").title == "A title"


def test_deep_nesting_is_cut_before_it_takes_for_ever() -> None:
    html = b"<a href=early>" + b"<div>" * 500_000 + b"<a href=late>"

    assert extract(html, "text/html", path="/").links == {"early"}
    shallow = b"<br><p><li>" * (2 * MAX_NESTING) + b"<a href=late>"
    assert extract(shallow, "text/html", path="/").links == {"late"}


def test_what_is_left_open_does_not_multiply() -> None:
    opened = b"<p>" + b"".join(b"<b x=%d>" % number for number in range(1000)) + b"</p>"
    html = opened + b"<p>x</p>" * 20_000 + b"<a href=late>" + b"</b>" * 1000
    began = time.thread_time()

    assert extract(html, "text/html", path="/").links == {"late"}
    assert time.thread_time() - began < 2.0, "it would be twenty million elements"


def test_a_page_with_a_hundred_thousand_links() -> None:
    html = b"".join(b'<a href="/%d">%s</a>' % (number, b"x" * 40) for number in range(100_000))

    assert len(extract(html, "text/html", path="/").links) == 100_000


@pytest.mark.parametrize(
    ("srcset", "urls"),
    [
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("a 1x,b 2x", ["a", "b"]),
        (" a,b.png 1x , c 100w 2h,", ["a,b.png", "c"]),
        ("data:image/png;base64,xx== 1x, b 2x", ["data:image/png;base64,xx==", "b"]),
        ("", []),
        (" , ,", []),
    ],
)
def test_srcset(srcset: str, urls: list[str]) -> None:
    assert list(urls_of_srcset(srcset)) == urls


@pytest.mark.parametrize(
    ("css", "urls"),
    [
        ("a{b:url(x.png)}", ["x.png"]),
        ("a{b:URL( 'x y.png' )}", ["x y.png"]),
        ('@import "a.css" screen; @import url(b.css);', ["a.css", "b.css"]),
        ("/* url(no) */ a{content:'url(no)'}", []),
        (r"a{b:url(a\)b)}", ["a)b"]),
        (r'a{b:url("a\)b")}', ["a)b"]),
        ("a{b:url(data:image/png;base64,xx)}", []),
        (
            "a{b:image-set('x.png' 1x, url(y.png) 2x, \"z.png\" type('image/png') 3x)} c{content:'no'}",
            ["x.png", "y.png", "z.png"],
        ),
        (
            "a{b:image-set(url( 'x.png' ) 1x, url(\"y.png\") 2x, url( z.png ) 3x)}",
            ["x.png", "y.png", "z.png"],
        ),
        ("a{b:-webkit-image-set(url(x.png) 1x", ["x.png"]),
    ],
)
def test_css(css: str, urls: list[str]) -> None:
    assert list(urls_of_css(css)) == urls


def test_a_style_sheet_is_looked_through_up_to_a_limit() -> None:
    assert len(list(urls_of_css("url(a)" * (MAX_CSS_TOKENS + 5)))) == MAX_CSS_TOKENS


def test_feeds_and_sitemaps() -> None:
    rss = b"<rss><channel><link>http://x/</link><item><guid>http://x/g</guid><enclosure url='http://x/e.mp3'/></item>"
    assert links_of_xml(rss).links == {"http://x/", "http://x/g"}
    assert links_of_xml(rss).requisites == {"http://x/e.mp3"}
    atom = b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><link href='/a'/></entry></feed>"
    assert extract(atom, "application/atom+xml", path="/f").links == {"/a"}
    index = b"<sitemapindex><sitemap><loc> http://x/s.xml </loc></sitemap></sitemapindex>"
    assert extract(index, "text/xml", path="/s").sitemaps == {"http://x/s.xml"}
    sitemap = b"<?xml version='1.0'?><urlset><url><loc>http://x/1</loc></url></urlset>"
    assert extract(sitemap, "application/x-gzip", path="/sitemap.xml.gz").links == {"http://x/1"}
    robots = extract(b"User-agent: *\nSITEMAP: http://x/a.xml\n", "text/plain", path="/robots.txt")
    assert robots.sitemaps == {"http://x/a.xml"}


def test_what_feeds_quote_and_how_xml_is_shown() -> None:
    item = "<item><description>&lt;a href='/d'>&lt;img src='/i.png'></description></item>"
    rss = links_of_xml(f"<rss><channel>{item}</channel></rss>".encode())
    assert (rss.links, rss.requisites) == ({"/d"}, {"/i.png"})
    cdata = "<content:encoded><![CDATA[<p><a href='/c'>]]></content:encoded>"
    assert links_of_xml(f"<rss xmlns:content='c'><item>{cdata}</item></rss>".encode()).links == {"/c"}
    atom = "<content type='xhtml'><div><a href='/x'><img src='/y.png'/></a></div></content>"
    found = links_of_xml(f"<feed><entry>{atom}</entry></feed>".encode())
    assert (found.links, found.requisites) == ({"/x"}, {"/y.png"})
    styled = b"<?xml version='1.0'?><?xml-stylesheet type='text/xsl' href=\"s.xsl\"?><a/>"
    assert links_of_xml(styled).requisites == {"s.xsl"}


def test_entities_of_drawing_programs_are_expanded() -> None:
    declared = "<!ENTITY site 'http://x/'><!ENTITY page '&site;a?b&amp;c'><!ENTITY % other 'y'>"
    doctype = f'<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd" [{declared}]>'
    svg = f"<?xml version='1.0'?>{doctype}<svg><a xlink:href='&page;'/><image href='&site;i.png'/></svg>"

    for encoding in ("utf-8", "utf-16"):
        found = extract(svg.encode(encoding), "image/svg+xml", path="/p.svg")
        assert (found.links, found.requisites) == ({"http://x/a?b&c"}, {"http://x/i.png"})


@pytest.mark.parametrize(
    ("root", "declared"),
    [
        ("rss", "<!ENTITY e 'x'>"),
        ("urlset", "<!ENTITY e 'x'>"),
        ("svg", "<!ENTITY e '&f;'><!ENTITY f 'x'>"),
        ("svg", f"<!ENTITY e '{'x' * (MAX_EXPANSION // 2 + 1)}'>"),
        ("svg", "".join(f"<!ENTITY e{number} 'x'>" for number in range(MAX_DECLARATIONS + 1))),
        ("svg", "".join(f"<!ATTLIST a b{number} CDATA ''>" for number in range(MAX_DECLARATIONS + 1))),
    ],
    ids=lambda text: text[:40],
)
def test_a_document_that_could_be_made_of_entities_is_not_read(root: str, declared: str) -> None:
    xml = f"<!DOCTYPE {root} [{declared}]><{root}><a href='/a?b&amp;c&amp;d'/></{root}>"

    assert links_of_xml(xml.encode()).links == set()
    assert links_of_xml(xml.replace(declared, "").encode()).links == {"/a?b&c&d"}


def test_a_text_that_is_too_long_for_a_url_is_none() -> None:
    long = "x" * (MAX_REFERENCE + 1)
    xml = f"<rss><item><link>/{long}</link></item><item><link>/y</link></item></rss>"

    assert links_of_xml(xml.encode()).links == {"/y"}
    assert Base("http://x/").resolve(f"/#{long}") is None
    assert list(urls_of_css(f"a{{b:url({long})}}c{{d:url(y)}}")) == ["y"]


def test_headers() -> None:
    found = links_of_headers(['<s.css>; rel=preload; as=style, </n>; title="a,b"; rel="next"'], "5; url=/r")

    assert (found.links, found.requisites) == ({"/n", "/r"}, {"s.css"})


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_codings_are_undone_up_to_a_limit(coding: str) -> None:
    packed = encode(b"x" * 3_000_000, coding)

    assert decode_content(packed, coding, limit=5_000_000) == b"x" * 3_000_000
    assert decode_content(packed, coding, limit=1000) == b"x" * 1000
    assert decode_content(encode(packed, "gzip"), f"{coding}, gzip", limit=5_000_000) == b"x" * 3_000_000
    assert decode_content(b"nonsense", coding, limit=10) == b""


@pytest.mark.parametrize(
    ("document", "content_type", "charset"),
    [
        (b"\xef\xbb\xbfx", "text/html; charset=latin-1", "utf-8"),
        (b"x", 'text/html; charset="ISO-8859-1"', "windows-1252"),
        (b"<meta charset=gb2312>", "text/html", "gb18030"),
        (b'<?xml version="1.0" encoding="koi8-r"?>', "text/html", "koi8-r"),
        (b'<meta http-equiv=content-type content="text/html; charset=euc-jp">', "text/html", "euc_jp"),
        ("ü".encode(), "text/html", "utf-8"),
        (b"\xfc", "text/html", "windows-1252"),
        (b"x", "text/html; charset=rot13", "utf-8"),
        (b"<meta charset=utf-16>", "text/html", "utf-8"),
    ],
)
def test_charsets(document: bytes, content_type: str, charset: str) -> None:
    assert charset_of(document, content_type) == charset


def test_the_same_page_under_another_url_has_the_same_fingerprint() -> None:
    page = b"<p>A long enough text to compare, with a token: %s and a link to %s</p>" + b"." * 64
    one = fingerprint(page % (b"0123456789abcdef", b"/a?x=1"), "http://x.example/a?x=1")
    two = fingerprint(page % (b"fedcba9876543210", b"/b?x=2"), "http://x.example/b?x=2")
    other = fingerprint(page.replace(b"long", b"wide") % (b"0123456789", b"/a"), "http://x.example/a")

    assert one == two != other


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/a/a/a/a/b", True),
        ("/a/b/a/b/a/b/a/b/", True),
        ("/a/a/a/b", False),
        ("/1/2/3/4/5/6/7/8", False),
        ("/?a=1&a=1&a=1&a=1", True),
        ("/?a=1&a=2&a=3&a=4", False),
        ("/x" * 70, True),
    ],
)
def test_paths_that_repeat_themselves_are_loops(path: str, is_one: bool) -> None:
    assert is_loop("http://x.example" + path) is is_one
