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
        "scheme": "what it speaks there: `http`, or `https` for TLS",
        "process": "machine, pid and start of its process: a name that no other process ever has",
        "warning": "what operators should know of its machine; empty if there is nothing",
    },
    parts={"role": rules.ID},
)
ROLES = Key(
    "remuda:roles",
    ZSetName,
    meaning="Every running role, so that no scan is needed",
    writer="fleet/role, which also removes those without a record",
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
    meaning="The owner of the resource, as long as the key lives",
    writer="fleet/liveness",
    lifetime=expires(60, ends="renewed by its holder, deleted when given up"),
    fields={"value": "id of the owner"},
    parts={"resource": rules.TOPIC},
)
BELL = Key(
    "remuda:bell:{topic}",
    ChannelName,
    meaning="Rung when waiting processes should look again; carries no data, so a lost ring costs only time",
    writer="the process that changes what is waited for",
    lifetime=until("it is heard"),
    parts={"topic": rules.TOPIC},
)
LINE_TURNS = Key(
    "remuda:line:turns:{line}",
    ZSetName,
    meaning="The accounts that wait in a queue: the first of them is served next",
    writer="fleet/line, and fleet/uses when an account gets a browser or gives one back",
    lifetime=expires(60, ends="prolonged while a client waits; deleted with the last ticket"),
    fields={
        "member": "name of the account, scored by its turn: 10^12 for each browser that it has, and the "
        "milliseconds from 2026 to when that last changed, or else to when it joined; no two are equal"
    },
    parts={"line": rules.TOPIC},
)
LINE_ORDER = Key(
    "remuda:line:order:{account}:{line}",
    ZSetName,
    meaning="An account's part of a queue: its tickets in order of arrival",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while a client waits; deleted with the last ticket"),
    fields={"member": "ticket, scored by its arrival in Unix microseconds by Redis' clock"},
    parts={"account": rules.ACCOUNT, "line": rules.TOPIC},
)
LINE_LEASES = Key(
    "remuda:line:leases:{line}",
    ZSetName,
    meaning="Until when each ticket of the line counts, unless the process that waits for it prolongs it",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while a client waits; deleted with the last ticket"),
    fields={
        "member": "account and ticket, with a bar between them, scored by the end of its lease in Unix "
        "microseconds by Redis' clock"
    },
    parts={"line": rules.TOPIC},
)
LINE_COUNTS = Key(
    "remuda:line:counts:{line}",
    HashName,
    meaning="How many tickets of each account wait in the line: what a position is computed from",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while a client waits; deleted with the last ticket"),
    fields={"<account>": "how many"},
    parts={"line": rules.TOPIC},
)
WAITS = Key(
    "remuda:waits:{account}",
    ZSetName,
    meaning="The queues in which clients of an account wait: its turn in each changes with what it has",
    writer="fleet/line",
    lifetime=expires(60, ends="prolonged while a client of it waits in any queue"),
    fields={"member": "name of the line, scored by the end of its last lease in Unix microseconds"},
    parts={"account": rules.ACCOUNT},
)
LINES = Key(
    "remuda:lines",
    ZSetName,
    meaning="Every queue in which a client waits, so that no scan is needed",
    writer="fleet/line, which also removes empty ones",
    lifetime=expires(60, ends="prolonged while a client waits in any queue"),
    fields={"member": "name of the line, scored by the end of its last lease in Unix microseconds"},
)
USES = Key(
    "remuda:uses:{account}",
    ZSetName,
    meaning="Sessions and connections of an account, from their request to their end",
    writer="fleet/uses",
    lifetime=expires(120, ends="prolonged while the account uses anything"),
    fields={"member": "id of the session or connection, scored by the end of its lease in Unix milliseconds"},
    parts={"account": rules.ACCOUNT},
)
HELD = Key(
    "remuda:held:{account}",
    ZSetName,
    meaning="Those of an account's sessions and connections that have a browser; the fair queue counts them",
    writer="fleet/uses",
    lifetime=expires(120, ends="prolonged while the account uses anything"),
    fields={"member": "id of the session or connection, scored by the end of its lease in Unix milliseconds"},
    parts={"account": rules.ACCOUNT},
)
STARTS = Key(
    "remuda:starts:{account}",
    ZSetName,
    meaning="The sessions and connections that an account has started in the last minute",
    writer="fleet/uses",
    lifetime=expires(60),
    fields={"member": "id of the session or connection, scored by its start in Unix milliseconds"},
    parts={"account": rules.ACCOUNT},
)
