"""The keys of fleet/: what Remuda needs beyond the documents. All of them live under `remuda:`."""

from remuda.keyspace import rules
from remuda.keyspace.key import ChannelName, HashName, Key, StringName, ZSetName, expires, until

ROLE = Key(
    "remuda:role:{role}",
    HashName,
    meaning="A running role, and where to reach it",
    writer="fleet/role",
    lifetime=expires(15),
    fields={
        "name": "what it is: `gateway`, `manager`, `orchestrator`, ...",
        "host": "name of the machine it runs on",
        "pid": "id of its process",
        "version": "version of Remuda",
        "startedAt": "RFC 3339, when it started",
        "beatAt": "RFC 3339, its last beat",
        "address": "`host:port` it listens at; empty when it does not listen",
    },
    parts={"role": rules.ID},
)
ROLES = Key(
    "remuda:roles",
    ZSetName,
    meaning="Every role that runs, so that nobody has to scan for them",
    writer="fleet/role, which also trims the stale ones",
    lifetime=until("its last member leaves"),
    fields={"member": "role id, scored by its last beat in Unix seconds"},
)
SECRET = Key(
    "remuda:secret",
    StringName,
    meaning="The herd's secret, which internal ports ask for; never shown",
    writer="fleet/secret: the first process that needs it, and any that knows it after a loss of data",
    lifetime=until("an operator deletes it"),
    fields={"value": "256 random bits in hexadecimal digits"},
)
LEASE = Key(
    "remuda:lease:{resource}",
    StringName,
    meaning="Who owns the resource, for as long as the key lives",
    writer="fleet/lease",
    lifetime=expires(60, ends="renewed by its holder, deleted when given up"),
    fields={"value": "id of the owner"},
    parts={"resource": rules.TOPIC},
)
BELL = Key(
    "remuda:bell:{topic}",
    ChannelName,
    meaning="Rung when what is waited for may have come; carries no truth, so a lost ring costs only time",
    writer="whoever makes it come",
    lifetime=until("it is heard"),
    parts={"topic": rules.TOPIC},
)
PRESENCE = Key(
    "remuda:presence:{topic}",
    ChannelName,
    meaning="Listened to by one process for as long as it is connected; nothing is ever published",
    writer="fleet/presence",
    lifetime=until("its process is gone"),
    fields={"message": "none"},
    parts={"topic": rules.TOPIC},
)
LINE_ORDER = Key(
    "remuda:line:order:{line}",
    ZSetName,
    meaning="Who waits in the line, in the order in which they came",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while somebody waits; gone with the last who leaves"),
    fields={"member": "ticket, scored by its arrival in Unix microseconds by Redis' clock"},
    parts={"line": rules.TOPIC},
)
LINE_LEASES = Key(
    "remuda:line:leases:{line}",
    ZSetName,
    meaning="Until when each ticket of the line counts, unless the process that waits for it prolongs it",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while somebody waits; gone with the last who leaves"),
    fields={"member": "ticket, scored by the end of its lease in Unix microseconds by Redis' clock"},
    parts={"line": rules.TOPIC},
)
LINES = Key(
    "remuda:lines",
    ZSetName,
    meaning="Every line that somebody waits in, so that nobody has to scan for them",
    writer="fleet/line, which also trims those that nobody stands in any more",
    lifetime=expires(60, ends="prolonged while somebody waits anywhere"),
    fields={"member": "name of the line, scored by the end of its last lease in Unix microseconds"},
)
