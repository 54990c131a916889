"""The keys of metering/: usage per service and resource, in fifteen-minute steps.

A key spells the hierarchy of what it holds, `<service>:<resourcetype>:<resource>:<metric>`. Its first
segment is free, so the rule of a service refuses every word that begins the keys of another room.
"""

import math

from remuda.keyspace import rules
from remuda.keyspace.key import (
    ChannelName,
    HashName,
    Key,
    ListName,
    SetName,
    StreamName,
    StringName,
    ZSetName,
    expires,
    until,
)

RESERVED = (
    "archivebot",
    "cluster",
    "manager",
    "metrics",
    "orchestrator",
    "pending",
    "pipeline",
    "remuda",
    "session",
    "storage",
    "tweets",
    "worker",
)
"""First segments of other rooms: no service may be called so."""

_PARTS = {
    "service": rf"(?!(?:{'|'.join(RESERVED)})(?::|\Z))[a-z][a-z0-9-]{{0,31}}",
    "resourcetype": "buckets|accounts|users|service|location",
    "resource": r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}",
    "metric": "storageUtilized|numberOfObjects",
    # Thirteen digits: milliseconds from 2001 to 2286.
    "timestamp": "[0-9]{13}",
    # The shape of an operation or a measure and no list of them: services declare those. But none is called
    # like a state, or like the last segment of its counter.
    "operation": r"(?!(?:counter|storageUtilized|numberOfObjects)\Z)[A-Za-z][A-Za-z0-9]{0,63}",
    "shard": "[0-9a-f]{3}",
}
_KEPT = until("its resource is forgotten")

METER_STATE = Key(
    "{service}:{resourcetype}:{resource}:{metric}",
    ZSetName,
    meaning="The storage used, or the number of objects, as it was at each time slot",
    writer="metering",
    lifetime=_KEPT,
    fields={"member": "`<value>:<timestamp>`, scored by the time slot in milliseconds"},
    source="002",
    parts=_PARTS,
)
METER_COUNTER = Key(
    "{service}:{resourcetype}:{resource}:{metric}:counter",
    StringName,
    meaning="The storage used, or the number of objects, as it is now; the state is recorded from it",
    writer="metering",
    lifetime=_KEPT,
    fields={"value": "integer, bytes or objects"},
    source="002",
    parts=_PARTS,
)
METER_USAGE = Key(
    "{service}:{resourcetype}:{timestamp}:{resource}:{operation}",
    StringName,
    meaning="How often an operation ran, or how many bytes came in or went out, in one time slot",
    writer="metering",
    lifetime=until("its time slot has been rolled up", lingers=math.inf),
    fields={"value": "integer, operations or bytes"},
    source="002",
    parts=_PARTS,
)
METER_LOCATION = Key(
    "{service}:location:{resource}:locationStorage",
    StringName,
    meaning="The storage used at a location, under the name by which Utapi's clients ask for it",
    writer="metering",
    lifetime=_KEPT,
    fields={"value": "integer, bytes"},
    parts=_PARTS,
)
METER_EVENT = Key(
    "{service}:event:{resource}",
    ChannelName,
    meaning="Something in a bucket was changed; Utapi publishes the same",
    writer="metering",
    lifetime=until("it is heard"),
    fields={"value": "the action, then the keys of its objects, separated by colons"},
    parts=_PARTS,
)
REPLAY = Key(
    "{service}:utapireplay",
    ListName,
    meaning="Usage that could not be recorded when it happened, to be pushed again every five minutes",
    writer="metering",
    lifetime=until("its last member leaves"),
    fields={"member": "JSON `{action, reqUid, params, timestamp}` of the push that failed"},
    source="002",
    parts=_PARTS,
)
REPLAY_LOCK = Key(
    "{service}:utapireplay:lock",
    StringName,
    # Utapi's own name for it, and no lease: its replay and ours must not drain one list together.
    meaning="A replay is running; Utapi takes the same lock",
    writer="metering",
    lifetime=expires(900, ends="deleted when the replay is over"),
    fields={"value": "`true`"},
    parts=_PARTS,
)

# What Remuda adds

MAX_REMEMBERED = 7 * 86400
"""Seconds for which an event id can be remembered at most."""

SEEN_EVENTS = Key(
    "remuda:metering:seen:{timestamp}:{shard}",
    SetName,
    meaning="Events that were counted in a period: an id in it or the period before is not counted again",
    writer="metering/push",
    # Many small sets: to delete one takes no time, and up to 512 numbers take 8 bytes each.
    lifetime=expires(2 * MAX_REMEMBERED, ends="expires when the period after its own is over"),
    fields={"member": "64 bits of a hash of account, service and event id, as a signed number"},
    parts=_PARTS,
)
CLOSED = Key(
    "remuda:metering:closed",
    StringName,
    meaning="Every time slot before this one is rolled up; what is counted in it now comes late",
    writer="metering/push at the first event, metering/rollup from then on",
    lifetime=until("an operator deletes it"),
    fields={"value": "time slot in milliseconds"},
)
AHEAD = Key(
    "remuda:metering:ahead",
    StringName,
    meaning="The newest time slot in which something was counted before it began, by a clock that is fast",
    writer="metering/push",
    lifetime=until("an operator deletes it"),
    fields={"value": "time slot in milliseconds"},
)
ACTIVE = Key(
    "remuda:metering:active:{service}:{resourcetype}:{timestamp}",
    SetName,
    meaning="The resources that a time slot has to be rolled up for",
    writer="metering/push, metering/rollup",
    lifetime=until("the time slot is rolled up"),
    fields={"member": "resource"},
    parts=_PARTS,
)
ROLLED_SLOTS = Key(
    "remuda:metering:slots:{service}:{resourcetype}:{resource}",
    HashName,
    meaning="What a resource used in each time slot that is rolled up",
    writer="metering/rollup",
    lifetime=until("its last day is older than is kept, or the resource is forgotten"),
    fields={
        "<day>": "by days since 1970: MessagePack, for each operation and measure the numbers of all time "
        "slots; for a state, by how much it changed. Packed denser once the day is over: see metering/pack"
    },
    parts=_PARTS,
)
ROLLED_DAYS = Key(
    "remuda:metering:days:{service}:{resourcetype}:{resource}",
    HashName,
    meaning="What a resource used in each day, so that long ranges are added up from few numbers",
    writer="metering/rollup",
    lifetime=until("its last day is older than is kept, or the resource is forgotten"),
    fields={
        "<day>": "by days since 1970: MessagePack, for each operation and measure the sum of its time slots"
    },
    parts=_PARTS,
)
UNPACKED = Key(
    "remuda:metering:unpacked",
    ZSetName,
    meaning="The days of resources that are rolled up and not packed yet",
    writer="metering/rollup",
    lifetime=until("the last of them is packed"),
    fields={"member": "`<day>:<service>:<resourcetype>:<resource>`, scored by the day since 1970"},
)
ADOPTED = Key(
    "remuda:metering:adopted",
    StringName,
    meaning="What Utapi had counted in this Redis before is rolled up",
    writer="metering/rollup",
    lifetime=until("an operator deletes it"),
    fields={"value": "RFC 3339, when that was done"},
)
LATE = Key(
    "remuda:metering:late:{service}:{resourcetype}:{resource}",
    HashName,
    meaning="What was counted in time slots after they had been rolled up",
    writer="metering/push; metering/rollup adds it to the rolled-up days",
    lifetime=until("it is rolled up"),
    fields={"<timestamp>:<metric>": "integer, to be added"},
    parts=_PARTS,
)
LATE_RESOURCES = Key(
    "remuda:metering:late",
    SetName,
    meaning="The resources for which something came late, so that no scan is needed",
    writer="metering/push, metering/rollup",
    lifetime=until("it is rolled up"),
    fields={"member": "`<service>:<resourcetype>:<resource>`"},
)
DELETED = Key(
    "remuda:metering:deleted",
    ZSetName,
    meaning="Buckets that were deleted and are to be forgotten, where the config says so",
    writer="metering/push, metering/forget",
    lifetime=until("the last of them is forgotten"),
    fields={"member": "`<service>:<resourcetype>:<resource>`, scored by the Unix second of its deletion"},
)
RESOURCES = Key(
    "remuda:metering:resources:{service}:{resourcetype}",
    ZSetName,
    meaning="Every resource that was ever metered, so that no scan is needed",
    writer="metering/push, metering/rollup",
    lifetime=until("its last resource is forgotten"),
    fields={"member": "resource, scored by the last time slot in which it was used, in milliseconds"},
    parts=_PARTS,
)
OWNERS = Key(
    "remuda:metering:owners:{service}:{resourcetype}",
    HashName,
    meaning="The account that a bucket or a user belongs to: the first that used it, or the one that an "
    "operator has assigned it to",
    writer="metering/push, metering/owners",
    lifetime=until("its last resource is forgotten"),
    fields={"<resource>": "account id"},
    parts=_PARTS,
)
ASSIGNED = Key(
    "remuda:metering:assigned:{service}:{resourcetype}",
    HashName,
    meaning="The accounts that operators have assigned buckets or users to; stays when usage is forgotten",
    writer="metering/owners",
    lifetime=until("an operator releases the last of them"),
    fields={"<resource>": "account id"},
    parts=_PARTS,
)
_QUOTA_PARTS = {"account": r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"}
QUOTAS = Key(
    "remuda:quotas:{account}",
    HashName,
    meaning="What an account may use in a day or a month, or store",
    writer="metering/quotas",
    lifetime=until("its last quota is removed, or the account is deleted"),
    fields={
        "<service>.<measure>": "`<hard> <soft> <period>`: both limits, `-` for none; `day` or `month`, and "
        "`now` for what is stored"
    },
    parts=_QUOTA_PARTS,
)
QUOTA_USE = Key(
    "remuda:quota.use:{account}",
    HashName,
    meaning="What an account has used of its quotas in the present period",
    writer="metering/push, metering/quotas, metering/reconcile",
    lifetime=until("the account is deleted"),
    fields={
        "<service>.<measure>": "how much",
        "<service>.<measure>.since": "milliseconds, when the period began; 0 for what is stored",
        "<service>.<measure>.until": "milliseconds, when it ends; 0 for what is stored",
    },
    parts=_QUOTA_PARTS,
)
QUOTA_EVENTS = Key(
    "remuda:quota.events",
    ListName,
    meaning="Quotas that were reached, of which the webhook has not been told yet; at most 10,000",
    writer="metering/push adds, metering/webhooks removes",
    lifetime=until("its last member is delivered"),
    fields={"member": "JSON `{id, account, quota, kind, limit, used, period, until}`"},
)
USAGE_TOTALS = Key(
    "remuda:metrics:usage:{service}",
    HashName,
    meaning="What each account has used of a service since it is metered, for /metrics; about 900 fields",
    writer="metering/push",
    lifetime=until("an operator deletes it"),
    fields={"<account> <measure>": "how much; without an account, that of all that came later"},
    parts=_PARTS,
)
TIMER = Key(
    "remuda:metering:timer:{timer}",
    HashName,
    meaning="A session, connection or run of a job whose time is metered, and how much of that is counted",
    writer="grid, playwright and archive, with what begins and ends it; metering/timers",
    lifetime=until("it has ended and all of it is counted"),
    fields={
        "service": "`grid`, `playwright` or `archive`",
        "account": "whose it is",
        "began": "milliseconds since 1970",
        "seen": "milliseconds since 1970, when its gateway last said that it goes on; only of connections",
        "ended": "milliseconds since 1970; missing as long as it goes on",
        "counted": "milliseconds since 1970 up to which its time is counted; missing if none of it is",
        "<action>:<parameter>": "how much it has used since it began, such as `fetch:pages`",
        "<minute>:<action>:<parameter>": "the same at the end of a minute that is not counted yet",
        "counted:<action>:<parameter>": "how much of that is counted",
    },
    parts={"timer": rules.ID},
)
TIMERS = Key(
    "remuda:metering:timers",
    ZSetName,
    meaning="Every timer, so that no scan is needed",
    writer="grid, playwright and archive, with what begins and ends; metering/timers",
    lifetime=until("the last of them has ended"),
    fields={"member": "id of the timer, scored by the millisecond at which it has something to count"},
)
POISON = Key(
    "remuda:metering:poison",
    ListName,
    meaning="Events that cannot be replayed, for an operator to look at: `remuda metering poison`",
    writer="metering/replay",
    lifetime=until("an operator drops or repeats them"),
    fields={"member": "JSON `{at, reason, source, element}`"},
)
CORRECTIONS = Key(
    "remuda:metering:corrections",
    StreamName,
    meaning="Every correction of a counter or a state: who made it, why, and by how much",
    writer="metering/reconcile",
    lifetime=until("it is trimmed: about 10,000 entries stay"),
    fields={
        "at": "RFC 3339",
        "account": "account of the token that asked for it",
        "token": "name of the token; empty where none is needed",
        "service": "service",
        "resourcetype": "level",
        "resource": "resource",
        "metric": "state that was corrected",
        "counter": "value of the counter before",
        "state": "value of the newest point of the sorted set before; empty if there was none",
        "value": "what both are now",
        "event": "id of the corrective event",
    },
)
METERING_METRICS = Key(
    "remuda:metrics:metering",
    HashName,
    meaning="How many events were counted, came twice, came late, were spooled, replayed or set aside",
    writer="metering/push, metering/replay",
    lifetime=until("an operator deletes it"),
    fields={
        "accepted": "events that were counted",
        "duplicates": "events that had been counted before",
        "late": "changes of time slots that were rolled up already",
        "failed": "keys that could not be changed since they hold something else",
        "replayed": "events that were counted from a spool or from Utapi's list",
        "poison": "events that were set aside",
    },
)
