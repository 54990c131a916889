"""URLs that are wrong: what is said of them does not have their password, wherever it stands."""

from collections.abc import Callable

import pytest

from remuda.archive.crawler.network import check_proxy
from remuda.base.errors import Misconfigured
from remuda.base.log import redact_wrong_url
from remuda.fleet.tracing import TracingConfig
from remuda.fleet.tracing.target import target_of
from remuda.metering.webhooks import Webhooks
from remuda.store import Store


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis+sentinel://me:p@se/cr#et@db", "redis+sentinel://***@db"),
        ("me:secret@host:1", "***@host:1"),
        ("http://a/?token=secret", "http://a/?token=***"),
        ("http://:x:1", "http://:x:1"),
    ],
)
def test_all_before_the_last_at_sign_may_be_a_password(text: str, shown: str) -> None:
    assert redact_wrong_url(text) == shown


def use_webhook(url: str) -> None:
    Webhooks(Store("unix:///nowhere"), url, secret="")


def use_collector(url: str) -> None:
    target_of(TracingConfig(otlp_endpoint=url))


@pytest.mark.parametrize("use", [use_webhook, use_collector, check_proxy])
@pytest.mark.parametrize("url", ["ftp:me:secret@host", "http://me:secret#@host:1", "//me:secret@host:x/"])
async def test_an_option_is_refused_without_its_password(use: Callable[[str], object], url: str) -> None:
    with pytest.raises(Misconfigured, match="host") as caught:
        use(url)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["", "http://me:p@proxy:3128", "socks5://proxy", "socks5h://[::1]:1080"])
def test_a_proxy_of_crawls_is_taken_as_it_is(url: str) -> None:
    assert check_proxy(url) == url
