"""The keys of playwright/: the registry of workers, their two connection counters, their shutdown command."""

from remuda.keyspace import rules
from remuda.keyspace.key import HashName, Key, StringName, expires, until

_PARTS = {"browser": "chromium|firefox|webkit", "worker": rules.ID}

WORKER = Key(
    "worker:{browser}:{worker}",
    HashName,
    meaning="A worker that is alive, and where to reach its browser",
    writer="playwright/worker; playwright/reaper deletes",
    lifetime=expires(60),
    fields={
        "browserType": "`chromium`, `firefox` or `webkit`",
        "wsEndpoint": "WebSocket URL for the proxy to connect to",
        "endpoint": "the same URL, under the name that existing workers and proxies use",
        "status": "`available` or `draining`",
        "lastHeartbeat": "Unix time in seconds, the last beat",
    },
    source="003",
    parts=_PARTS,
)
WORKER_COMMAND = Key(
    "worker:cmd:{browser}:{worker}",
    StringName,
    meaning="What the worker is told to do; it looks at each beat",
    writer="playwright/proxy",
    lifetime=expires(60, ends="deleted by the worker that obeys it"),
    fields={"value": "`shutdown`: drain, then exit"},
    source="003",
    parts=_PARTS,
)
ACTIVE_CONNECTIONS = Key(
    "cluster:active_connections",
    HashName,
    meaning="Connections that each worker serves now",
    writer="playwright/selector, playwright/proxy, playwright/worker; playwright/reaper removes",
    lifetime=until("its last worker leaves"),
    fields={"<browser>:<worker>": "number of open connections"},
    source="003",
)
LIFETIME_CONNECTIONS = Key(
    "cluster:lifetime_connections",
    HashName,
    meaning="Connections that each worker has ever served; at the limit it is told to shut down",
    writer="playwright/selector, playwright/worker; playwright/reaper removes",
    lifetime=until("its last worker leaves"),
    fields={"<browser>:<worker>": "number of connections, never decremented"},
    source="003",
)
