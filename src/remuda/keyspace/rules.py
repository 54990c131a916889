"""What placeholders may hold, where more than one room needs the same rule. Every rule is ASCII only.

The rules that only one room needs stand in that room's file, beside the keys they guard.
"""

ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""An id that a process chose for itself. No colon: an id never reaches into the next segment of a key."""

TOPIC = r"[A-Za-z0-9:._-]{1,200}"
"""A path of ids. Colons are welcome, so it may only stand at the end of a pattern."""

ACCOUNT = r"[a-z0-9][a-z0-9._-]{0,62}"
"""The name of an account, which an operator chose."""
