"""The keys of grid/: sessions, the orchestrators that own slots, the managers, and the live timeouts.

Two documents describe them, and this is their union. Where they differ in a value (a session's heartbeat
is RFC 3339 in 000 and a number in 001) the later one, 000, is followed.
"""

from typing import Any

from remuda.keyspace import rules
from remuda.keyspace.key import (
    ChannelName,
    HashName,
    Key,
    ListName,
    SetName,
    StreamName,
    StringName,
    expires,
    until,
)

_EMPTIED = until("its last member leaves")
_SESSION_PURGED = until("ops/gc purges the session")
_ORCHESTRATOR_PURGED = until("ops/gc purges the orchestrator, once its `retain` has expired")

ORCHESTRATORS = Key(
    "orchestrators",
    SetName,
    meaning="Every orchestrator of the grid, alive or not yet purged",
    writer="grid/orchestrator; ops/gc removes",
    lifetime=_EMPTIED,
    fields={"member": "orchestrator id"},
    source="000, 001",
)
ORCHESTRATORS_PRESENT = Key(
    "remuda:orchestrators.present",
    SetName,
    meaning="Orchestrators that listen to their channel of `remuda:presence`, so that their death is noticed",
    writer="grid/orchestrator adds; the manager that finds one gone removes it",
    lifetime=_EMPTIED,
    fields={"member": "orchestrator id"},
)
MANAGERS = Key(
    "managers",
    SetName,
    meaning="Every manager that creates sessions",
    writer="grid/manager; ops/gc removes",
    lifetime=_EMPTIED,
    fields={"member": "manager id"},
    source="001",
)
SESSIONS_ACTIVE = Key(
    "sessions.active",
    SetName,
    meaning="Sessions from their request to their end",
    writer="grid/manager adds; the process that ends a session moves it to `sessions.terminated`",
    lifetime=_EMPTIED,
    fields={"member": "session id"},
    source="000, 001",
)
SESSIONS_TERMINATED = Key(
    "sessions.terminated",
    SetName,
    meaning="Sessions that have ended and are kept for their history",
    writer="the process that ends a session; ops/gc removes",
    lifetime=_EMPTIED,
    fields={"member": "session id"},
    source="000, 001",
)
SESSIONS_OF = Key(
    "remuda:sessions:{account}",
    SetName,
    meaning="The sessions of an account, active or ended: it finds its few among the many of all accounts",
    writer="grid/manager adds; ops/gc removes, and adds what is missing",
    lifetime=_EMPTIED,
    fields={"member": "session id"},
    parts={"account": rules.ACCOUNT},
)
TIMEOUTS = Key(
    "timeouts",
    HashName,
    meaning="The grid's live settings: how long each step of a session may take",
    writer="grid/manager writes the defaults; an operator changes them",
    lifetime=until("an operator deletes it"),
    fields={
        "queue": "seconds a session may wait for a slot",
        "scheduling": "seconds until an orchestrator has scheduled the node",
        "nodeStartup": "seconds until the node answers",
        "driverStartup": "seconds until the driver answers its node",
        "sessionTermination": "seconds without a command after which a session ends",
        "slotReclaimInterval": "seconds between two searches for lost slots",
    },
    source="001",
)

SESSION_HEARTBEAT_NODE = Key(
    "session:{session}:heartbeat.node",
    StringName,
    meaning="The session's node is alive",
    writer="grid/node",
    lifetime=expires(60),
    fields={"value": "RFC 3339, the last beat"},
    source="000, 001",
)
SESSION_HEARTBEAT_MANAGER = Key(
    "session:{session}:heartbeat.manager",
    StringName,
    meaning="The manager is still creating the session",
    writer="grid/manager",
    lifetime=expires(30),
    fields={"value": "RFC 3339, the last beat"},
    source="000, 001",
)
SESSION_SLOT = Key(
    "session:{session}:slot",
    StringName,
    meaning="The slot that the session holds",
    writer="grid/manager",
    lifetime=until("the session ends and gives its slot back"),
    fields={"value": "slot id"},
    source="000, 001",
)
SESSION_ORCHESTRATOR = Key(
    "session:{session}:orchestrator",
    ListName,
    meaning="The orchestrator that scheduled the node; a list, so that the manager can wait for it",
    writer="grid/orchestrator",
    lifetime=_SESSION_PURGED,
    fields={"member": "orchestrator id, only one"},
    source="000, 001",
)
SESSION_LOG = Key(
    "session:{session}:log",
    StreamName,
    meaning="What happened to the session, in order; see the log codes",
    writer="grid/manager, grid/orchestrator, grid/node, gateway",
    lifetime=_SESSION_PURGED,
    fields={
        "component": "`node`, `orchestrator`, `manager` or `proxy`",
        "level": "`info`, `warn` or `fail`",
        "code": "event type, one of the log codes",
        "meta": "additional information",
    },
    source="001",
)
SESSION_STATUS = Key(
    "session:{session}:status",
    HashName,
    meaning="When the session entered each state; the latest one present is the state it is in",
    writer="grid/manager, grid/orchestrator; the process that ends the session",
    lifetime=_SESSION_PURGED,
    fields={
        "queuedAt": "RFC 3339, when the request came in",
        "pendingAt": "RFC 3339, when its node was scheduled",
        "aliveAt": "RFC 3339, when the client was given the session",
        "terminatedAt": "RFC 3339, when the session ended",
    },
    source="000, 001",
)
SESSION_CAPABILITIES = Key(
    "session:{session}:capabilities",
    HashName,
    meaning="What the client asked for and what it got",
    writer="grid/manager, grid/node",
    lifetime=_SESSION_PURGED,
    fields={
        "requested": "JSON, the capabilities of the request with `alwaysMatch` and `firstMatch`; without "
        "long strings once no node needs them",
        "actual": "JSON, the capabilities of the driver's session",
    },
    source="000, 001",
)
SESSION_METADATA = Key(
    "session:{session}:metadata",
    HashName,
    meaning="Name and build of the session; every further field is a label of the client",
    writer="grid/manager, grid/node",
    lifetime=_SESSION_PURGED,
    fields={"name": "name of the session", "build": "build that the session belongs to"},
    source="000",
)
SESSION_STORAGE = Key(
    "session:{session}:storage",
    StringName,
    meaning="The storage that holds the session's artifacts",
    writer="grid/node",
    lifetime=_SESSION_PURGED,
    fields={"value": "storage id"},
    source="000",
)
SESSION_TELEMETRY_CREATION = Key(
    "session:{session}:telemetry.creation",
    HashName,
    meaning="The trace that the session's creation belongs to",
    writer="grid/manager",
    lifetime=_SESSION_PURGED,
    fields={
        "traceID": "trace id, 32 hex digits",
        "context": "JSON, the span of the creation as the headers `traceparent` and `tracestate`",
    },
    source="000",
)
SESSION_UPSTREAM = Key(
    "session:{session}:upstream",
    HashName,
    meaning="Where the session's node listens, and the driver's own name for the session",
    writer="grid/orchestrator, grid/node",
    lifetime=_SESSION_PURGED,
    fields={
        "host": "host of the node",
        "port": "port of the node",
        "driverSessionID": "session id at the driver",
    },
    source="001",
)
SESSION_DOWNSTREAM = Key(
    "session:{session}:downstream",
    HashName,
    meaning="The client that uses the session",
    writer="grid/manager, grid/node",
    lifetime=_SESSION_PURGED,
    fields={
        "host": "address of the client",
        "userAgent": "its User-Agent header",
        "lastSeen": "RFC 3339, its last command",
    },
    source="001",
)

SESSION_REQUESTED_SHORT = Key(
    "remuda:session:{session}:requested.short",
    StringName,
    meaning="The short form of `requested`, for when no node needs the whole; only if that is too large",
    writer="grid/manager",
    lifetime=until("the session is alive or has ended"),
    fields={"value": 'JSON; each long string is `{"omitted": {"bytes": ..., "sha256": ...}}`'},
)

SESSION_ORIGIN = Key(
    "remuda:session:{session}:origin",
    HashName,
    meaning="The origin of the session: its account and the URL that its client uses",
    writer="grid/manager",
    lifetime=_SESSION_PURGED,
    fields={
        "account": "the account that it is counted for",
        "address": "address of the client",
        "scheme": "`http` or `https`",
        "host": "host and port of the front door",
        "token": "name of the token that it was created with; empty when none was needed",
    },
)
SESSION_SCHEME = Key(
    "remuda:session:{session}:scheme",
    StringName,
    meaning="The session's node speaks TLS",
    writer="grid/node, where there is a certificate",
    lifetime=_SESSION_PURGED,
    fields={"value": "`https`"},
)
REQUESTS_LARGE = Key(
    "remuda:requests.large",
    HashName,
    meaning="Sessions whose large capabilities wait in Redis for a node, so that there is a limit for all "
    "and for each account",
    writer="grid/manager; the process that moves the session to alive or terminated removes it",
    lifetime=_EMPTIED,
    fields={"<session-id>": "bytes of its `requested`, a space, and the account, if a token was shown"},
)

SESSION_KEYS: tuple[Key[Any], ...] = (
    SESSION_HEARTBEAT_NODE,
    SESSION_HEARTBEAT_MANAGER,
    SESSION_SLOT,
    SESSION_ORCHESTRATOR,
    SESSION_LOG,
    SESSION_STATUS,
    SESSION_CAPABILITIES,
    SESSION_METADATA,
    SESSION_STORAGE,
    SESSION_TELEMETRY_CREATION,
    SESSION_UPSTREAM,
    SESSION_DOWNSTREAM,
    SESSION_REQUESTED_SHORT,
    SESSION_ORIGIN,
    SESSION_SCHEME,
)
"""Every key of one session: what a purge deletes."""

ORCHESTRATOR = Key(
    "orchestrator:{orchestrator}",
    HashName,
    meaning="What kind of orchestrator this is",
    writer="grid/orchestrator",
    lifetime=_ORCHESTRATOR_PURGED,
    fields={"type": "`local`, `docker` or `k8s`"},
    source="000, 001",
)
ORCHESTRATOR_HEARTBEAT = Key(
    "orchestrator:{orchestrator}:heartbeat",
    StringName,
    meaning="The orchestrator is alive",
    writer="grid/orchestrator",
    lifetime=expires(60),
    fields={"value": "Unix time in seconds, the last beat"},
    source="000, 001",
)
ORCHESTRATOR_RETAIN = Key(
    "orchestrator:{orchestrator}:retain",
    StringName,
    meaning="The orchestrator was alive within 7 days: without this key its other keys may be purged",
    writer="grid/orchestrator",
    lifetime=expires(604800),
    fields={"value": "Unix time in seconds, the last refresh"},
    source="000",
)
ORCHESTRATOR_PLATFORM_NAME = Key(
    "orchestrator:{orchestrator}:capabilities:platformName",
    StringName,
    meaning="The platform that its nodes run on",
    writer="grid/orchestrator",
    lifetime=_ORCHESTRATOR_PURGED,
    fields={"value": "WebDriver's `platformName`, such as `linux`"},
    source="000, 001",
)
ORCHESTRATOR_BROWSERS = Key(
    "orchestrator:{orchestrator}:capabilities:browsers",
    SetName,
    meaning="The browsers that it can start",
    writer="grid/orchestrator",
    lifetime=_ORCHESTRATOR_PURGED,
    fields={"member": "`browserName::browserVersion`, such as `firefox::74.0.1`"},
    source="000, 001",
)
ORCHESTRATOR_SLOTS = Key(
    "orchestrator:{orchestrator}:slots",
    SetName,
    meaning="Every slot that it owns, free or taken",
    writer="grid/orchestrator",
    lifetime=_ORCHESTRATOR_PURGED,
    fields={"member": "slot id"},
    source="000, 001",
)
ORCHESTRATOR_SLOTS_RECLAIMED = Key(
    "orchestrator:{orchestrator}:slots.reclaimed",
    ListName,
    meaning="Slots given back, on their way to `slots.available`",
    writer="grid/orchestrator, grid/node, ops/gc",
    lifetime=_EMPTIED,
    fields={"member": "slot id"},
    source="000, 001",
)
ORCHESTRATOR_SLOTS_AVAILABLE = Key(
    "orchestrator:{orchestrator}:slots.available",
    ListName,
    meaning="Slots that a session may take; a manager blocks on the lists of all orchestrators that match",
    writer="grid/orchestrator adds, grid/manager takes",
    lifetime=_EMPTIED,
    fields={"member": "slot id"},
    source="000, 001",
)
ORCHESTRATOR_BACKLOG = Key(
    "orchestrator:{orchestrator}:backlog",
    ListName,
    meaning="Sessions that have a slot and wait for their node to be scheduled",
    writer="grid/manager adds, grid/orchestrator takes",
    lifetime=_EMPTIED,
    fields={"member": "session id"},
    source="000, 001",
)
ORCHESTRATOR_PENDING = Key(
    "orchestrator:{orchestrator}:pending",
    ListName,
    meaning="Sessions whose node is being scheduled; what a crash leaves here is taken up again",
    writer="grid/orchestrator",
    lifetime=_EMPTIED,
    fields={"member": "session id"},
    source="000, 001",
)
ORCHESTRATOR_HOLDERS = Key(
    "remuda:orchestrator:{orchestrator}:holders",
    HashName,
    meaning="Which session holds each taken slot, so that lost ones are found without asking every session",
    writer="grid/slots",
    lifetime=_EMPTIED,
    fields={"<slot-id>": "session id"},
)
ORCHESTRATOR_NODES = Key(
    "remuda:orchestrator:{orchestrator}:nodes",
    HashName,
    meaning="How to find each session's node again after a restart; noted before the node gets its session",
    writer="grid/orchestrator",
    lifetime=_EMPTIED,
    fields={"<session-id>": "how its provisioner finds it: for a process, its pid and its start in ticks"},
)
ORCHESTRATOR_MACHINE = Key(
    "remuda:orchestrator:{orchestrator}:machine",
    HashName,
    meaning="The machine that it runs on, as in `osInfo` of Selenium Grid",
    writer="grid/orchestrator",
    lifetime=_ORCHESTRATOR_PURGED,
    fields={
        "arch": "its processor, such as `amd64`",
        "name": "its operating system, such as `Linux`",
        "version": "the version of that",
    },
)

ORCHESTRATOR_DRAIN = Key(
    "remuda:orchestrator:{orchestrator}:drain",
    StringName,
    meaning="It gets no new sessions, while its running sessions continue; absent while it is in service",
    writer="grid/draining",
    lifetime=until("it is put back in service, or leaves"),
    fields={"value": "`asked` (by an operator) or `leaving` (it shuts down)"},
)

ORCHESTRATOR_OBSTACLE = Key(
    "remuda:orchestrator:{orchestrator}:obstacle",
    StringName,
    meaning="It runs but cannot start sessions now; absent while it can",
    writer="grid/orchestrator",
    lifetime=expires(15),
    fields={"value": "the reason as text, such as a full disk"},
)

ORCHESTRATOR_KEYS: tuple[Key[Any], ...] = (
    ORCHESTRATOR,
    ORCHESTRATOR_HEARTBEAT,
    ORCHESTRATOR_RETAIN,
    ORCHESTRATOR_PLATFORM_NAME,
    ORCHESTRATOR_BROWSERS,
    ORCHESTRATOR_SLOTS,
    ORCHESTRATOR_SLOTS_RECLAIMED,
    ORCHESTRATOR_SLOTS_AVAILABLE,
    ORCHESTRATOR_BACKLOG,
    ORCHESTRATOR_PENDING,
    ORCHESTRATOR_HOLDERS,
    ORCHESTRATOR_NODES,
    ORCHESTRATOR_MACHINE,
    ORCHESTRATOR_DRAIN,
    ORCHESTRATOR_OBSTACLE,
)
"""Every key of one orchestrator: what a purge deletes."""

MANAGER = Key(
    "manager:{manager}",
    HashName,
    meaning="Where the manager listens",
    writer="grid/manager",
    lifetime=until("its manager stops, or ops/gc finds its heartbeat gone"),
    fields={"host": "host of the manager", "port": "port of the manager"},
    source="001",
)
MANAGER_SCHEME = Key(
    "remuda:manager:{manager}:scheme",
    StringName,
    meaning="The manager speaks TLS",
    writer="grid/manager, where there is a certificate",
    lifetime=until("its manager stops, or ops/gc finds its heartbeat gone"),
    fields={"value": "`https`"},
)
MANAGERS_CREATING = Key(
    "remuda:managers",
    SetName,
    meaning="Managers that may be creating sessions, also while they drain",
    writer="grid/manager adds; the process that has ended a gone manager's sessions removes it",
    lifetime=_EMPTIED,
    fields={"member": "manager id"},
)
MANAGER_SESSIONS = Key(
    "remuda:manager:{manager}:sessions",
    HashName,
    meaning="Sessions that the manager is creating, so that they are ended if it is killed",
    writer="grid/manager; the process that ends a gone manager's sessions",
    lifetime=_EMPTIED,
    fields={"<session-id>": "the account whose session it is"},
)
PRESENCE = Key(
    "remuda:presence:{topic}",
    ChannelName,
    meaning="Listened to by a manager or an orchestrator for as long as it is connected; nothing is ever "
    "published",
    writer="grid/manager, grid/orchestrator",
    lifetime=until("its listener is gone"),
    fields={"message": "none"},
    parts={"topic": rules.TOPIC},
)
MANAGER_HEARTBEAT = Key(
    "manager:{manager}:heartbeat",
    StringName,
    meaning="The manager is alive",
    writer="grid/manager",
    lifetime=expires(120),
    fields={"value": "Unix time in seconds, the last beat"},
    source="001",
)
