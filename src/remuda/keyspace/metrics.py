"""The counters behind /metrics: what the herd has done since its Redis was created.

They only grow, so they have no lifetime of their own; a scraper works with their differences.
"""

from remuda.keyspace.key import HashName, Key, StringName, until
from remuda.keyspace.log_codes import LEVELS

_METHODS = "GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|OTHER"
"""A fixed list: a client that invents methods must not be able to invent keys. Its requests are `OTHER`."""

_FOREVER = until("an operator deletes it")

METRICS_HTTP_REQUESTS = Key(
    "metrics:http:requestsTotal:{method}",
    HashName,
    meaning="Requests answered, by HTTP method",
    writer="gateway",
    lifetime=_FOREVER,
    fields={"<http-status-code>": "number of answers with this status"},
    source="000, 001",
    parts={"method": _METHODS},
)
METRICS_HTTP_BYTES = Key(
    "metrics:http:net.bytes.total",
    HashName,
    meaning="Bytes of request and response bodies at the front door",
    writer="gateway",
    lifetime=_FOREVER,
    fields={"in": "bytes from clients", "out": "bytes to clients"},
    source="000, 001",
)
METRICS_SESSIONS_TOTAL = Key(
    "metrics:sessions:total",
    HashName,
    meaning="Sessions that have entered each state",
    writer="grid/manager, grid/orchestrator; the process that ends a session",
    lifetime=_FOREVER,
    fields={
        "queued": "number of sessions requested",
        "pending": "number of sessions whose node was scheduled",
        "alive": "number of sessions given to a client",
        "terminated": "number of sessions ended",
    },
    source="000, 001",
)
METRICS_SESSIONS_DURATION = Key(
    "metrics:sessions:duration.seconds.total",
    HashName,
    meaning="Time that sessions have spent in each state, added when they leave it",
    writer="grid/manager, grid/orchestrator; the process that ends a session",
    lifetime=_FOREVER,
    fields={"queued": "seconds queued", "pending": "seconds pending", "alive": "seconds alive"},
    source="000, 001",
)
METRICS_STARTUP_COUNT = Key(
    "metrics:sessions:startup.histogram:count",
    StringName,
    meaning="Sessions whose start-up was measured, from the request to the answer",
    writer="grid/manager",
    lifetime=_FOREVER,
    fields={"value": "number of sessions"},
    source="000, 001",
)
METRICS_STARTUP_SUM = Key(
    "metrics:sessions:startup.histogram:sum",
    StringName,
    meaning="The time that those start-ups took together",
    writer="grid/manager",
    lifetime=_FOREVER,
    fields={"value": "seconds"},
    source="000, 001",
)
METRICS_STARTUP_BUCKETS = Key(
    "metrics:sessions:startup.histogram:buckets",
    HashName,
    meaning="Those start-ups by how long they took, cumulative, as in Prometheus",
    writer="grid/manager",
    lifetime=_FOREVER,
    fields={"<bucket>": "number of start-ups that took at most this many seconds; the last is `+Inf`"},
    source="000, 001",
)
METRICS_SESSIONS_LOG = Key(
    "metrics:sessions:log:{level}",
    HashName,
    meaning="Entries written to session logs, by level",
    writer="grid/manager, grid/orchestrator, grid/node, gateway",
    lifetime=_FOREVER,
    fields={"<session-log-code>": "number of entries with this code"},
    source="000, 001",
    parts={"level": "|".join(LEVELS)},
)
METRICS_SLOTS_RECLAIMED = Key(
    "metrics:slots:reclaimed.total",
    HashName,
    meaning="Lost slots that were recovered, by the reason",
    writer="grid/orchestrator",
    lifetime=_FOREVER,
    fields={"dead": "slots whose session had died", "orphaned": "slots that no session held"},
    source="000, 001",
)
METRICS_STORAGE_TOTAL = Key(
    "metrics:storage:disk.bytes.total",
    HashName,
    meaning="Size limit of each storage",
    writer="storage",
    lifetime=_FOREVER,
    fields={"<storage-id>": "bytes"},
    source="000",
)
METRICS_STORAGE_USED = Key(
    "metrics:storage:disk.bytes.used",
    HashName,
    meaning="Bytes used in each storage",
    writer="storage",
    lifetime=_FOREVER,
    fields={"<storage-id>": "bytes"},
    source="000",
)
