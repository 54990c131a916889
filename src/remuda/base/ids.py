"""The names of things. One NewType a kind, so that a node's id never passes for a session's."""

import re
import uuid
from typing import NewType

SessionId = NewType("SessionId", str)
"""A client's browser, from request to end."""
NodeId = NewType("NodeId", str)
"""The process that holds one WebDriver session."""
OrchestratorId = NewType("OrchestratorId", str)
ManagerId = NewType("ManagerId", str)
SlotId = NewType("SlotId", str)
"""The right to start one node."""
WorkerId = NewType("WorkerId", str)
"""The process that holds a Playwright browser."""
ConnectionId = NewType("ConnectionId", str)
"""One Playwright client's connection to a worker."""
RoleId = NewType("RoleId", str)
"""One running role: a gateway, a manager, an orchestrator."""

UUID_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID = re.compile(UUID_PATTERN)


def new_id() -> str:
    """A fresh random UUID, as text."""
    return str(uuid.uuid4())


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in the lower-case form that `new_id` makes."""
    return _UUID.fullmatch(text) is not None
