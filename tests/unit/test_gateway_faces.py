"""How errors look to those who asked."""

import json
from uuid import uuid4

import pytest

from remuda.base.errors import SessionEnded, SessionLost, StoreUnavailable, UnknownMethod, UpstreamUnavailable
from remuda.fleet.relay import Answer, MalformedRequest, Request
from remuda.fleet.relay.head import read_head
from remuda.gateway.faces import render_error


def request(target: str, method: str = "GET") -> Request:
    head = read_head(f"{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return Request(head, head.method, head.target, "127.0.0.1")


def headers(answer: Answer) -> dict[str, str]:
    return dict(answer.headers)


def test_a_webdriver_client_gets_the_w3c_form() -> None:
    answer = render_error(request("/session/x"), SessionLost("There is no session 'x'."))

    assert answer.status == 404
    assert answer.content_type == "application/json; charset=utf-8"
    assert headers(answer)["Cache-Control"] == "no-cache"
    assert json.loads(answer.body) == {
        "value": {"error": "invalid session id", "message": "There is no session 'x'.", "stacktrace": ""}
    }


def test_an_error_at_the_status_of_the_grid_has_the_w3c_form_too() -> None:
    answer = render_error(request("/status"), UpstreamUnavailable("No api is running"))

    assert json.loads(answer.body)["value"]["message"] == "No api is running"


def test_anybody_else_gets_a_code_and_a_message() -> None:
    answer = render_error(request("/api/x"), UpstreamUnavailable("Nobody is there."))

    assert answer.status == 502
    assert json.loads(answer.body) == {
        "error": {"code": "upstream_unavailable", "message": "Nobody is there."}
    }


def test_what_was_no_request_gets_the_plain_form() -> None:
    assert json.loads(render_error(None, MalformedRequest()).body)["error"]["code"] == "malformed_request"


def test_who_should_come_back_is_told_when() -> None:
    assert headers(render_error(None, StoreUnavailable(retry_after=1.2)))["Retry-After"] == "2"


def test_a_wrong_method_is_told_the_right_one() -> None:
    assert headers(render_error(request("/session"), UnknownMethod()))["Allow"] == "POST"


def test_who_asks_for_a_session_while_redis_is_away_is_told_that_there_is_none() -> None:
    answer = render_error(request("/wd/hub/session"), StoreUnavailable("Redis at x does not answer."))

    assert answer.status == 500
    assert json.loads(answer.body)["value"] == {
        "error": "session not created",
        "message": "Redis at x does not answer. Ask for the session again when Redis is back.",
        "stacktrace": "",
    }


def test_a_redis_that_is_away_is_no_news_about_a_session_elsewhere() -> None:
    answer = render_error(request("/session/x/url"), StoreUnavailable())

    assert answer.status == 503
    assert json.loads(answer.body)["value"]["error"] == "unknown error"


@pytest.mark.parametrize("prefix", ["", "/wd/hub"])
def test_who_ends_a_session_that_has_ended_is_told_that_it_is_gone(prefix: str) -> None:
    target = f"{prefix}/session/{uuid4()}"
    ended = SessionEnded("Session x ended at noon")

    assert json.loads(render_error(request(target, "DELETE"), ended).body) == {"value": None}
    assert render_error(request(f"{target}/window", "DELETE"), ended).status == 404
    assert render_error(request(target, "DELETE"), SessionLost()).status == 404
