"""The keys of storage/: news of files, on its way from whoever wrote them to the index that lists them."""

from remuda.keyspace import rules
from remuda.keyspace.key import Key, ListName, until

STORAGE_METADATA_PENDING = Key(
    "storage:{storage}:metadata.pending",
    ListName,
    meaning="Files written or changed that the storage's own index does not know yet",
    writer="whoever writes an artifact adds, storage takes",
    lifetime=until("its last member leaves"),
    fields={"member": "JSON `{path, size, last_modified, last_access}`, times as RFC 3339"},
    source="000",
    parts={"storage": rules.ID},
)
