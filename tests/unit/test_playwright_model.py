"""What is read from what others write: versions, browsers, heartbeats; and the limits of a config."""

import pytest

from configs import make_config
from remuda.base.errors import InvalidArgument
from remuda.fleet.liveness import RENEWALS_PER_TTL
from remuda.playwright.model import (
    ServedBrowser,
    WorkerLimits,
    beat_of,
    browser_of,
    path_version,
    version_of,
    wait_bucket,
)
from remuda.playwright.room import PlaywrightConfig, are_browsers_own


@pytest.mark.parametrize(
    ("user_agent", "version"),
    [
        ("Playwright/1.62.0 (x64; debian 12) python/3.11", "1.62"),
        ("Playwright/1.65.0-next (arm64; macOS 15)", "1.65"),
        ("Playwright/1.62", "1.62"),
        ("Playwright/1.62 (x64)", "1.62"),
        ("Playwright/1", ""),
        ("Playwright/1.6x2.0", ""),
        ("Playwright/1.62345.0", ""),
        ("Playwright/1.٦٢.0", ""),
        ("Mozilla/5.0 Playwright/1.62.0", ""),
        ("playwright/1.62.0", ""),
        ("Go-http-client/1.1", ""),
        ("", ""),
    ],
)
def test_a_client_is_of_the_version_that_it_introduces_itself_with(user_agent: str, version: str) -> None:
    assert version_of(user_agent) == version


@pytest.mark.parametrize(
    ("part", "version"),
    [
        ("playwright-1.64.1", "1.64"),
        ("playwright-1.64", "1.64"),
        ("1.64.1", "1.64"),
        ("v1.64.1", "1.64"),
        ("playwright-1.65.0-beta-123", "1.65"),
        ("playwright-1", ""),
        ("playwright-latest", ""),
        ("playwright-1.64.1.2", ""),
        ("playwright-1.٦٤.1", ""),
        ("latest", ""),
        ("", ""),
    ],
)
def test_a_path_may_name_the_version(part: str, version: str) -> None:
    assert path_version(part) == version


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1699999999", 1699999999),
        ("1699999999123", 1699999999.123),
        ("0", 0),
        (None, None),
        ("", None),
        ("yesterday", None),
    ],
)
def test_a_beat_is_read_in_seconds_and_in_milliseconds(text: str | None, seconds: float | None) -> None:
    assert beat_of(text) == seconds


def test_a_browser_that_there_is_not_is_answered_with_those_there_are() -> None:
    assert browser_of("firefox") is ServedBrowser.FIREFOX
    with pytest.raises(InvalidArgument, match="no browser 'opera'; there are chromium, firefox, webkit"):
        browser_of("opera")


def test_the_limits_are_those_of_the_config() -> None:
    config = PlaywrightConfig(
        playwright_concurrent=7, playwright_lifetime=8, playwright_lease=9, playwright_key_ttl=99
    )

    limits = WorkerLimits.of(config)

    assert (limits.concurrent, limits.lifetime, limits.key_ttl) == (7, 8, 99)
    assert WorkerLimits.of(PlaywrightConfig()) == WorkerLimits()


def test_a_crash_has_healed_within_the_time_of_the_config() -> None:
    limits = WorkerLimits.of(PlaywrightConfig(playwright_lease=9))

    # Just renewed when the gateway died, and just not yet over at the next gateway's sweep.
    assert 5 <= limits.lease + limits.lease / RENEWALS_PER_TTL < 9


@pytest.mark.parametrize(
    ("waited", "bucket"), [(0, "0.01"), (0.01, "0.01"), (0.011, "0.05"), (30, "30"), (300.1, "+Inf")]
)
def test_a_wait_falls_into_the_first_bucket_that_holds_it(waited: float, bucket: str) -> None:
    assert wait_bucket(waited) == bucket


@pytest.mark.parametrize(
    ("auth", "isolation", "are_own"),
    [
        ("on", "auto", True),
        ("off", "auto", False),
        ("on", "shared", False),
        ("off", "own", True),
    ],
)
def test_browsers_are_shared_only_where_no_token_is_needed_or_the_operator_says_so(
    auth: str, isolation: str, *, are_own: bool
) -> None:
    assert are_browsers_own(make_config(auth=auth, playwright_isolation=isolation)) is are_own
