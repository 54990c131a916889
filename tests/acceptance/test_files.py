"""A stock Selenium client sends files to its browser and fetches what that has downloaded."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import InvalidArgumentException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.file_detector import LocalFileDetector
from selenium.webdriver.support.wait import WebDriverWait

from clients import options_for
from herds import Herd

PATIENCE = 60
FORM = "data:text/html,<input type=file id=one><input type=file id=several multiple>"
# A file of so many bytes, which repeat only after 64 KiB.
SAVE = """
const bytes = new Uint8Array(arguments[1]).map((_, index) => index * 31 + (index >> 8));
const link = document.createElement('a');
link.href = URL.createObjectURL(new Blob([bytes], {type: 'application/octet-stream'}));
link.download = arguments[0];
document.body.append(link);
link.click();
"""
LARGE = 24 << 20


def expected(size: int) -> bytes:
    """What SAVE has the browser download."""
    period = bytes((index * 31 + (index >> 8)) % 256 for index in range(1 << 16))
    return (period * (size // len(period) + 1))[:size]


@contextmanager
def session(herd: Herd, **capabilities: Any) -> Iterator[webdriver.Remote]:
    driver = webdriver.Remote(herd.url, options=options_for(**capabilities))
    try:
        yield driver
    finally:
        driver.quit()


def text_of(driver: webdriver.Remote, element: str) -> list[list[str]]:
    """Name and text of each file that an element of the page was given."""
    found: list[list[str]] = driver.execute_async_script(
        """
        const [id, done] = arguments;
        const files = [...document.getElementById(id).files];
        Promise.all(files.map(async file => [file.name, await file.text()])).then(done);
        """,
        element,
    )
    return found


def test_files_of_the_client_reach_its_page(herd: Herd, tmp_path: Path) -> None:
    first, second = tmp_path / "brand é.txt", tmp_path / "b.txt"
    first.write_text("of the rancher")
    second.write_text("and of the herd")

    with session(herd) as driver:
        driver.file_detector = LocalFileDetector()
        driver.get(FORM)
        driver.find_element(By.ID, "one").send_keys(str(first))
        driver.find_element(By.ID, "several").send_keys(f"{first}\n{second}")

        assert text_of(driver, "one") == [[first.name, "of the rancher"]]
        assert text_of(driver, "several") == [
            [first.name, "of the rancher"],
            [second.name, "and of the herd"],
        ]
        assert_no_downloads_here(herd, driver)
        assert_unknown_commands_are_the_drivers(herd, driver)


def assert_no_downloads_here(herd: Herd, driver: webdriver.Remote) -> None:
    path = f"/session/{driver.session_id}/se/files"
    for method, end in (("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/x")):
        status, answer, _ = herd.request(method, path + end, '{"name": "x"}' if method == "POST" else None)
        assert (status, answer["value"]["error"]) == (400, "invalid argument")
        assert "'se:downloadsEnabled': true" in answer["value"]["message"]


def assert_unknown_commands_are_the_drivers(herd: Herd, driver: webdriver.Remote) -> None:
    for method, path in (("GET", "se/nonsense"), ("POST", "se/nonsense"), ("GET", "se/file")):
        status, answer, _ = herd.request(method, f"/session/{driver.session_id}/{path}")
        assert (status, answer["value"]["error"]) == (404, "unknown command")


@pytest.mark.parametrize(
    "browser",
    [
        "chrome",
        pytest.param(
            "chrome-headless-shell",
            marks=pytest.mark.skipif(not which("chromium-headless-shell"), reason="not installed here"),
        ),
    ],
)
def test_downloads_can_be_listed_fetched_and_deleted(herd: Herd, tmp_path: Path, browser: str) -> None:
    with session(herd, **{"browserName": browser, "se:downloadsEnabled": True}) as driver:
        # Not a data: URL: without an origin a page may only download one file.
        driver.get(f"{herd.url}/healthz")
        assert driver.get_downloadable_files() == []
        driver.execute_script(SAVE, "hay.bin", 1000)
        driver.execute_script(SAVE, "big barn é.bin", LARGE)
        wait = WebDriverWait(driver, PATIENCE)
        wait.until(lambda driver: sorted(driver.get_downloadable_files()) == ["big barn é.bin", "hay.bin"])

        driver.download_file("hay.bin", str(tmp_path))
        assert (tmp_path / "hay.bin").read_bytes() == expected(1000)

        files = f"{herd.url}/session/{driver.session_id}/se/files"
        assert_flows(f"{files}/big%20barn%20%C3%A9.bin", expected(LARGE))
        for elsewhere in ("..%2Fdriver.log", "%2E%2E", "..%2F..%2F..%2Fetc%2Fpasswd", "none"):
            assert_missing(f"{files}/{elsewhere}")
        with pytest.raises(WebDriverException, match="There is no downloaded file"):
            driver.download_file("../driver.log", str(tmp_path))

        for elsewhere in (f"download/{driver.session_id}", f"session/{driver.session_id}/aerokube/download"):
            assert_flows(f"{herd.url}/{elsewhere}/hay.bin", expected(1000))
        assert herd.request("DELETE", f"/download/{driver.session_id}/hay.bin")[0] == 200
        assert_missing(f"{herd.url}/download/{driver.session_id}/hay.bin")
        assert driver.get_downloadable_files() == ["big barn é.bin"]

        driver.delete_downloadable_files()
        assert driver.get_downloadable_files() == []


def assert_flows(url: str, content: bytes) -> None:
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["Last-Modified"]
        assert hashlib.sha256(response.read()).digest() == hashlib.sha256(content).digest()


def assert_missing(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url, timeout=PATIENCE)
    assert error.value.code == 500


def test_a_session_without_options_of_the_right_kind_is_refused(herd: Herd) -> None:
    for options in ({"idleTimeout": 0}, {"idleTimeout": "for ever"}, {"metadata": {"a key": "x"}}):
        with (
            pytest.raises(InvalidArgumentException, match="in remuda:options"),
            session(herd, **{"remuda:options": options}),
        ):
            pytest.fail("a browser was started")
