"""The keys of metering/: what was used, by whom, in fifteen-minute steps.

A key spells the hierarchy of what it holds, `<service>:<resourcetype>:<resource>:<metric>`. Its first
segment is free, so the rule of a service refuses every word that begins the keys of another room.
"""

from remuda.keyspace.key import Key, ListName, StringName, ZSetName, expires, until

RESERVED = (
    "archivebot",
    "cluster",
    "manager",
    "metrics",
    "orchestrator",
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
    # The shape of an operation and no list of them: what can be done to a resource is for metering to say.
    "operation": "[A-Z][A-Za-z0-9]{0,63}|incomingBytes|outgoingBytes",
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
    lifetime=until("its resource is forgotten or its time slot is too old to keep"),
    fields={"value": "integer, operations or bytes"},
    source="002",
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
    meaning="Somebody is replaying; Utapi takes the same lock",
    writer="metering",
    lifetime=expires(900, ends="deleted when the replay is over"),
    fields={"value": "`true`"},
    parts=_PARTS,
)
