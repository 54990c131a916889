"""The keys of playwright/: the registry of workers, their two connection counters, their shutdown command.

The documented counters are what others read. Behind them stand Remuda's own keys: one lease a connection,
from which the counters follow, and indexes by which a worker is found without looking at all of them.
"""

from remuda.keyspace import rules
from remuda.keyspace.key import HashName, Key, StringName, ZSetName, expires, until

ANY_VERSION = "any"
"""Stands for the Playwright version of a worker that does not tell it: such a worker is offered to all."""

_PARTS = {"browser": "(?:chromium|firefox|webkit)(?:-own)?", "worker": rules.ID}
_BY_BROWSER = {"browser": _PARTS["browser"]}

WORKER = Key(
    "worker:{browser}:{worker}",
    HashName,
    meaning="A worker that is alive, and where to reach its browser",
    writer="playwright/registry; playwright/reaper deletes",
    lifetime=expires(60),
    fields={
        "browserType": "`chromium`, `firefox` or `webkit`; with `-own` behind it, each client gets its own",
        "wsEndpoint": "WebSocket URL for the proxy to connect to",
        "endpoint": "the same URL, under the name that existing workers and proxies use",
        "status": "`available` or `draining`",
        "lastHeartbeat": "Unix time in seconds, the last beat",
        "id": "the worker's id again; the original's proxy passes over an entry without it",
        "startedAt": "Unix time in milliseconds, as existing workers write it: when it started",
    },
    source="003",
    parts=_PARTS,
)
WORKER_COMMAND = Key(
    "worker:cmd:{browser}:{worker}",
    StringName,
    meaning="A command for the worker, read at each beat and when a channel of the same name is rung",
    writer="playwright/leases, playwright/reaper",
    lifetime=expires(60, ends="deleted by the worker that obeys it"),
    fields={"value": "`shutdown`: drain, then exit"},
    source="003",
    parts=_PARTS,
)
ACTIVE_CONNECTIONS = Key(
    "cluster:active_connections",
    HashName,
    meaning="Connections that each worker serves now",
    writer="playwright/selector, playwright/leases, playwright/registry; playwright/reaper removes",
    lifetime=until("its last worker leaves"),
    fields={"<browser>:<worker>": "number of open connections"},
    source="003",
)
LIFETIME_CONNECTIONS = Key(
    "cluster:lifetime_connections",
    HashName,
    meaning="All connections that each worker has served; at the limit it gets a shutdown command",
    writer="playwright/selector, playwright/leases, playwright/registry; playwright/reaper removes",
    lifetime=until("its last worker leaves"),
    fields={"<browser>:<worker>": "number of connections; a connection that failed is subtracted again"},
    source="003",
)

PLAYWRIGHT_WORKERS = Key(
    "remuda:playwright:workers:{browser}",
    ZSetName,
    meaning="Every worker of the browser, so that no scan is needed",
    writer="playwright/registry, playwright/reaper",
    lifetime=until("its last worker leaves or is reaped"),
    fields={"member": "worker id, scored by the Unix second until which it counts as alive"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_VERSIONS = Key(
    "remuda:playwright:versions:{browser}",
    HashName,
    meaning="The Playwright version of each worker",
    writer="playwright/registry, playwright/reaper",
    lifetime=until("its last worker leaves or is reaped"),
    fields={"<worker>": "`major.minor`, or `any` if the worker does not report it"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_OFFERS = Key(
    "remuda:playwright:offers:{browser}",
    ZSetName,
    meaning="Playwright versions on offer; one whose worker just restarts stays a while",
    writer="playwright/registry, playwright/reaper",
    lifetime=until("the reaper finds the last one outdated"),
    fields={"member": "version, scored by the Unix second until which it is on offer"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_STARTERS = Key(
    "remuda:playwright:starters:{browser}",
    ZSetName,
    meaning="Processes that can start a worker of the browser: clients wait although no worker runs yet",
    writer="playwright/demand",
    lifetime=expires(120, ends="prolonged while a starter lives"),
    fields={
        "member": "id of a herd or of a worker that starts, scored by the Unix second until which it counts"
    },
    parts=_BY_BROWSER,
)
PLAYWRIGHT_FREE = Key(
    "remuda:playwright:free:{browser}:{version}",
    ZSetName,
    meaning="Workers of this version that may take one more connection",
    writer="every script of playwright/",
    lifetime=until("its last worker is full or gone"),
    fields={"member": "worker id, scored by its lifetime connections, less a millionth for each active one"},
    parts={**_BY_BROWSER, "version": r"[0-9]{1,4}\.[0-9]{1,4}|any"},
)
PLAYWRIGHT_SUSPECTS = Key(
    "remuda:playwright:suspects:{browser}",
    ZSetName,
    meaning="Workers that did not answer a gateway: until they are cleared, others are chosen",
    writer="playwright/leases; playwright/registry, playwright/selector and playwright/reaper remove",
    lifetime=until("the last one is cleared"),
    fields={"member": "worker id, scored by the Unix second until which it is suspected"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_FAILURES = Key(
    "remuda:playwright:failures:{browser}",
    HashName,
    meaning="How often workers did not answer, in a row: a beat clears only the first suspicion",
    writer="playwright/leases; playwright/registry and playwright/reaper remove",
    lifetime=until("the last one has served a client, moved or left"),
    fields={"<worker>": "number of failures since it last served a client"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_OBSTACLES = Key(
    "remuda:playwright:obstacles:{browser}",
    HashName,
    meaning="Why workers take no connections for now: a full disk, for instance",
    writer="playwright/registry; playwright/reaper removes",
    lifetime=until("the last one is over, or its worker has left"),
    fields={"<worker>": "the reason, as text"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_LEASES = Key(
    "remuda:playwright:leases:{browser}",
    ZSetName,
    meaning="Every open connection; a lease that its gateway does not renew ends",
    writer="playwright/selector, playwright/leases, playwright/registry",
    lifetime=until("its last connection ends"),
    fields={"member": "`<worker>/<connection>`, scored by the Unix second at which the lease ends"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_CONNECTIONS = Key(
    "remuda:playwright:connections:{browser}:{worker}",
    ZSetName,
    meaning="The open connections of one worker: what its active counter counts",
    writer="playwright/selector, playwright/leases, playwright/registry",
    lifetime=until("its last connection ends"),
    fields={"member": "connection id, scored by the Unix second at which it began"},
    parts=_PARTS,
)
PLAYWRIGHT_ORIGINS = Key(
    "remuda:playwright:origins:{browser}",
    HashName,
    meaning="The origin of each open connection: its account and the URL that its client uses",
    writer="playwright/selector, playwright/leases",
    lifetime=until("its last connection ends"),
    fields={"<connection>": "JSON with account, address, scheme and host"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_REVOKED = Key(
    "remuda:playwright:revoked",
    HashName,
    meaning="Tokens and accounts whose connections are to end: gateways close those that began before",
    writer="playwright/revoked",
    lifetime=expires(600, ends="prolonged with each further one"),
    fields={"<account>/<token>": "Unix second; an account that was deleted has no token behind the slash"},
)
PLAYWRIGHT_LEAVING = Key(
    "remuda:playwright:leaving:{browser}",
    ZSetName,
    meaning="Workers that got a shutdown command or are draining",
    writer="playwright/leases, playwright/registry, playwright/reaper",
    lifetime=until("the last one has left"),
    fields={"member": "worker id, scored by the Unix second until which it counts as leaving"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_VACANT = Key(
    "remuda:playwright:vacant:{browser}",
    ZSetName,
    meaning="Workers that have left or are about to, and were not replaced yet",
    writer="playwright/registry, playwright/leases, playwright/reaper",
    lifetime=until("new workers have started, or the wait for them has timed out"),
    fields={"member": "worker id, scored by the Unix second until which a new worker is waited for"},
    parts=_BY_BROWSER,
)
PLAYWRIGHT_TOTALS = Key(
    "remuda:playwright:totals:{browser}",
    HashName,
    meaning="What has happened, for the metrics",
    writer="every script of playwright/",
    lifetime=until("the herd's data are deleted"),
    fields={
        "picks": "connections for which a worker was selected",
        "failed": "workers that did not answer a gateway",
        "healed": "expired leases",
        "corrected": "wrong counts of a foreign proxy: connections with neither a lease nor a socket",
        "adopted": "connections that Redis had lost and their gateways registered again",
        "restarts": "shutdown commands at the lifetime limit",
        "reaped": "dead workers that were removed",
    },
    parts=_BY_BROWSER,
)
PLAYWRIGHT_WAITS = Key(
    "remuda:playwright:waits:{browser}",
    HashName,
    meaning="How long clients had waited when they were given a worker, for the metrics",
    writer="playwright/selector",
    lifetime=until("the herd's data are deleted"),
    fields={
        "<bucket>": "number of waits of at most this many seconds that fit in no smaller bucket, or `+Inf`",
        "sum": "seconds of all of them together",
    },
    parts=_BY_BROWSER,
)
