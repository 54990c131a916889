"""Every code that a session's log may hold: which component writes it, its level, and what it means.

An `info` is a step on the way, a `warn` is recovered from, and after a `fail` the session ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass

COMPONENTS = ("node", "orchestrator", "manager", "proxy")
"""Who may write to a session's log. The document names the proxy among them, without a code of its own: those
that it has here are Remuda's."""

LEVELS = ("info", "warn", "fail")


@dataclass(frozen=True)
class LogCode:
    """One kind of event in a session's log."""

    component: str
    level: str
    code: str
    meaning: str


LOG_CODES = (
    LogCode("node", "info", "BOOT", "node has become active"),
    LogCode("node", "info", "DSTART", "driver in startup"),
    LogCode("node", "info", "DALIVE", "driver has become responsive"),
    LogCode("node", "info", "LSINIT", "local session created"),
    LogCode("node", "info", "CLOSED", "session closed by downstream client"),
    LogCode("node", "info", "HALT", "node enters shutdown"),
    LogCode("node", "fail", "DTIMEOUT", "driver has not become responsive"),
    LogCode("node", "fail", "DFAILURE", "driver process reported an error"),
    LogCode("node", "fail", "STIMEOUT", "session has been inactive too long"),
    LogCode("node", "fail", "TERM", "node terminates due to fault condition"),
    # Not in the document, which knows no code for what a client tells or asks for in vain, or a session
    # survives.
    LogCode("node", "info", "EVENT", "event reported by the client"),
    LogCode("node", "info", "IGNORED", "parts of the capabilities were left out"),
    LogCode("node", "warn", "RFAILURE", "recording failed, the session continues"),
    LogCode("orchestrator", "info", "SCHED", "node is being scheduled for startup"),
    # Not in the document, as RFAILURE.
    LogCode("orchestrator", "warn", "RESCHED", "node died before it had a browser, another is started"),
    LogCode("orchestrator", "fail", "STARTFAIL", "creation/startup failure"),
    LogCode("manager", "info", "QUEUED", "session has been queued at orchestrators"),
    LogCode("manager", "info", "NALLOC", "node slot has been allocated"),
    LogCode("manager", "info", "PENDING", "awaiting node startup"),
    LogCode("manager", "info", "NALIVE", "node has become responsive, client served"),
    LogCode("manager", "warn", "CLEFT", "client left before scheduling completed"),
    LogCode("manager", "fail", "QUNAVAILABLE", "no orchestrator can satisfy the capabilities"),
    LogCode("manager", "fail", "QTIMEOUT", "timed out waiting in queue"),
    LogCode("manager", "fail", "OTIMEOUT", "timed out waiting for orchestrator to schedule node"),
    LogCode("manager", "fail", "NTIMEOUT", "timed out waiting for node to become responsive"),
    LogCode("proxy", "warn", "CLOST", "client left before it had the answer to a command"),
    LogCode("proxy", "warn", "NLOST", "node did not take a command"),
)

BY_CODE: Mapping[str, LogCode] = {entry.code: entry for entry in LOG_CODES}
"""The code alone tells component and level: no code is used twice."""
