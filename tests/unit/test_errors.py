"""The error tree: the family says what to do, the class how it looks over HTTP and WebDriver."""

import inspect
import socket

import pytest

from remuda.base import errors
from remuda.base.errors import Broken, Lost, Refused, RemudaError, Unavailable, reason_of

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, RemudaError)
]
# W3C WebDriver 6.6 names these; no other word may stand in an error's JSON.
WEBDRIVER_CODES = {
    "invalid argument",
    "invalid session id",
    "session not created",
    "unknown command",
    "unknown error",
    "unknown method",
}


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_belongs_to_one_family(error: type[RemudaError]) -> None:
    families = [family for family in (Refused, Unavailable, Lost, Broken) if issubclass(error, family)]

    assert len(families) == (0 if error is RemudaError else 1)


@pytest.mark.parametrize("error", CLASSES)
def test_without_a_message_an_error_says_its_docstring(error: type[RemudaError]) -> None:
    assert str(error()) == error().message == (error.__doc__ or "").strip() != ""


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_has_a_face_for_http_and_webdriver(error: type[RemudaError]) -> None:
    assert 400 <= error.status <= 599
    assert error.webdriver in WEBDRIVER_CODES


@pytest.mark.parametrize("error", CLASSES)
def test_the_tree_in_the_docstring_names_every_error(error: type[RemudaError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")


def test_a_message_replaces_the_docstring() -> None:
    assert str(errors.SessionLost("Session 1 ended.")) == "Session 1 ended."


def test_what_is_unavailable_says_when_to_try_again() -> None:
    assert Unavailable().retry_after == 1.0
    assert Unavailable("busy", retry_after=7).retry_after == 7


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call"
            ),
            "Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("no Sentinel knows it"), "no Sentinel knows it"),
    ],
)
def test_what_the_system_refuses_is_told_in_its_words(error: OSError, reason: str) -> None:
    assert reason_of(error) == reason
