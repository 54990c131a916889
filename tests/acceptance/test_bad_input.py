"""Whatever a client sends, it gets a clear error in the form that it expects."""

import pytest

from herds import Herd

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("POST", "/session", "no json", 400, "invalid argument"),
        ("POST", "/session", "[]", 400, "invalid argument"),
        ("POST", "/session", "{}", 400, "invalid argument"),
        ("POST", "/session", '{"capabilities": {"alwaysMatch": {"nonsense": 1}}}', 400, "invalid argument"),
        ("POST", "/session", '{"capabilities": {"firstMatch": []}}', 400, "invalid argument"),
        ("POST", "/wd/hub/session", "no json", 400, "invalid argument"),
        ("GET", "/session", None, 405, "unknown method"),
        ("GET", f"/session/{UNKNOWN}/url", None, 404, "invalid session id"),
        ("DELETE", f"/session/{UNKNOWN}", None, 404, "invalid session id"),
        ("GET", "/session/..%2f..%2fetc/url", None, 404, "invalid session id"),
    ],
)
def test_webdriver_errors_have_the_form_of_w3c(
    herd: Herd, method: str, path: str, body: str | None, status: int, error: str
) -> None:
    answered, content, headers = herd.request(method, path, body)

    assert (answered, content["value"]["error"]) == (status, error)
    assert content["value"]["message"]
    assert content["value"]["stacktrace"] == ""
    assert headers["Content-Type"] == "application/json; charset=utf-8"


def test_other_paths_have_errors_of_their_own(herd: Herd) -> None:
    status, content, _ = herd.request("GET", "/api/none-such")

    assert status == 404
    assert content["error"]["message"]


def test_a_page_of_a_foreign_site_is_refused(herd: Herd) -> None:
    status, content, _ = herd.request("POST", "/session", "{}", Origin="http://evil.example")

    assert status == 403
    assert "evil.example" in content["value"]["message"]
