"""The keys of storage/: news of files, on its way from their writers to the index that lists them.

Where a storage listens is in its role record (`remuda:role:{role}`): the id of its role is its own.
"""

from remuda.keyspace import rules
from remuda.keyspace.key import HashName, Key, ListName, SetName, until

_EMPTIED = until("its last member leaves")
_GONE = "or the storage is gone for good"

STORAGE_METADATA_PENDING = Key(
    "storage:{storage}:metadata.pending",
    ListName,
    meaning="Files written or changed that the storage's own index does not know yet",
    writer="writers of artifacts (storage/writer) add, storage takes",
    lifetime=_EMPTIED,
    fields={
        "member": "JSON `{path, size, last_modified, last_access}`, times as RFC 3339; the path is"
        " `<session id>/<name>`, or `<kind>_<id>/<name>` for an owner of another kind"
    },
    source="000",
    parts={"storage": rules.ID},
)
STORAGE_METADATA_TAKEN = Key(
    "remuda:storage:{storage}:metadata.taken",
    ListName,
    meaning="Entries of `metadata.pending` that are being written to the index, and not committed yet",
    writer="storage",
    lifetime=_EMPTIED,
    fields={"member": "as in `metadata.pending`"},
    parts={"storage": rules.ID},
)
STORAGE_METADATA_REFUSED = Key(
    "remuda:storage:{storage}:metadata.refused",
    ListName,
    meaning="The last entries that could not be understood or name no artifact, for an operator to look at",
    writer="storage",
    lifetime=until(f"an operator deletes it, {_GONE}"),
    fields={"member": "the entry, cut off when it is long"},
    parts={"storage": rules.ID},
)
STORAGE_REFUSED_TOTAL = Key(
    "remuda:metrics:storage:metadata.refused.total",
    HashName,
    meaning="How many entries each storage has refused",
    writer="storage",
    lifetime=until("an operator deletes it, or its last storage is gone for good"),
    fields={"<storage-id>": "number of entries"},
)
STORAGE_UNWANTED = Key(
    "remuda:storage:{storage}:unwanted",
    SetName,
    meaning="Owners whose artifacts are to be deleted",
    writer="`ask_deletion` of storage/cleanup adds, storage removes",
    lifetime=until(f"its last member leaves, {_GONE}"),
    fields={"member": "session id, or `<kind>_<id>` for an owner of another kind"},
    parts={"storage": rules.ID},
)
STORAGE_METERED = Key(
    "remuda:storage:{storage}:metered",
    HashName,
    meaning="What is counted of each owner's artifacts on the meter of its account",
    writer="storage/meter",
    lifetime=until(f"its last owner has no artifacts any more, {_GONE}"),
    fields={
        "<owner>": "JSON `{account, total, next, event}`: bytes and artifacts that are counted, those that "
        "are being counted, and the id of the events for that"
    },
    parts={"storage": rules.ID},
)
