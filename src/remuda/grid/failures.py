"""Why a session could not be created, as its client hears it."""

from remuda.base.errors import InvalidArgument, RemudaError, SessionNotCreated, StoreFull, StoreUnavailable
from remuda.base.ids import SessionId
from remuda.grid.sessions import Sessions


class CreationFailed(SessionNotCreated):
    """The session could not be created; `code` says at which step."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SessionForgotten(CreationFailed):
    """Redis has lost what was written about the session, as in a fail-over."""

    def __init__(self) -> None:
        super().__init__("STARTFAIL", "Redis has lost what was written about the session; try again")


async def failure_of(sessions: Sessions, session: SessionId) -> RemudaError:
    """The error for a session that another process has ended."""
    code, meta = await sessions.last_words(session) or ("", {})
    # W3C WebDriver 7.2: capabilities that cannot be understood are an invalid argument.
    error = InvalidArgument if meta.get("error") == InvalidArgument.webdriver else SessionNotCreated
    return error(meta.get("message") or f"The session ended while it was being created ({code})")


def for_who_wanted_a_session(error: RemudaError) -> RemudaError:
    """The same error, but `session not created` while Redis is away, for which WebDriver's clients have
    retries of their own."""
    if not isinstance(error, StoreUnavailable) or isinstance(error, StoreFull):
        return error
    return SessionNotCreated(f"{error.message.rstrip('.')}. Ask for the session again when Redis is back.")
