"""The catalog against the documents it implements, written out by hand: names, types, fields and TTLs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from remuda.keyspace.catalog import CATALOG
from remuda.keyspace.key import Key
from remuda.keyspace.log_codes import BY_CODE, COMPONENTS, LEVELS, LOG_CODES


class Documented(NamedTuple):
    """What a document says of one key; a field list only where it names fields."""

    kind: str
    fields: str = ""
    ttl: float | None = None


Document = Mapping[str, Documented]

WEBGRID: Document = {
    "orchestrators": Documented("set"),
    "sessions.active": Documented("set"),
    "sessions.terminated": Documented("set"),
    "session:{session}:heartbeat.node": Documented("string", ttl=60),
    "session:{session}:heartbeat.manager": Documented("string", ttl=30),
    "session:{session}:slot": Documented("string"),
    "session:{session}:orchestrator": Documented("list"),
    "session:{session}:status": Documented("hash", "queuedAt pendingAt aliveAt terminatedAt"),
    "session:{session}:capabilities": Documented("hash", "requested actual"),
    "orchestrator:{orchestrator}": Documented("hash", "type"),
    "orchestrator:{orchestrator}:heartbeat": Documented("string", ttl=60),
    "orchestrator:{orchestrator}:capabilities:platformName": Documented("string"),
    "orchestrator:{orchestrator}:capabilities:browsers": Documented("set"),
    "orchestrator:{orchestrator}:slots.reclaimed": Documented("list"),
    "orchestrator:{orchestrator}:slots.available": Documented("list"),
    "orchestrator:{orchestrator}:slots": Documented("set"),
    "orchestrator:{orchestrator}:backlog": Documented("list"),
    "orchestrator:{orchestrator}:pending": Documented("list"),
    "metrics:http:requestsTotal:{method}": Documented("hash", "<http-status-code>"),
    "metrics:http:net.bytes.total": Documented("hash", "in out"),
    "metrics:sessions:total": Documented("hash", "queued pending alive terminated"),
    "metrics:sessions:duration.seconds.total": Documented("hash", "queued pending alive"),
    "metrics:sessions:startup.histogram:count": Documented("string"),
    "metrics:sessions:startup.histogram:sum": Documented("string"),
    "metrics:sessions:startup.histogram:buckets": Documented("hash", "<bucket>"),
    "metrics:sessions:log:{level}": Documented("hash", "<session-log-code>"),
    "metrics:slots:reclaimed.total": Documented("hash", "dead orphaned"),
}

DOCUMENTS: Mapping[str, Document] = {
    "000": {
        **WEBGRID,
        "storage:{storage}:metadata.pending": Documented("list"),
        "session:{session}:metadata": Documented("hash", "name build"),
        "session:{session}:storage": Documented("string"),
        "session:{session}:telemetry.creation": Documented("hash", "traceID context"),
        "orchestrator:{orchestrator}:retain": Documented("string", ttl=604800),
        "metrics:storage:disk.bytes.total": Documented("hash", "<storage-id>"),
        "metrics:storage:disk.bytes.used": Documented("hash", "<storage-id>"),
    },
    "001": {
        **WEBGRID,
        "managers": Documented("set"),
        "timeouts": Documented(
            "hash", "queue scheduling nodeStartup driverStartup sessionTermination slotReclaimInterval"
        ),
        "session:{session}:log": Documented("stream", "component level code meta"),
        "session:{session}:upstream": Documented("hash", "host port driverSessionID"),
        "session:{session}:downstream": Documented("hash", "host userAgent lastSeen"),
        "manager:{manager}:heartbeat": Documented("string", ttl=120),
        "manager:{manager}": Documented("hash", "host port"),
    },
    "002": {
        "{service}:{resourcetype}:{resource}:{metric}": Documented("zset"),
        "{service}:{resourcetype}:{resource}:{metric}:counter": Documented("string"),
        "{service}:{resourcetype}:{timestamp}:{resource}:{operation}": Documented("string"),
        "{service}:utapireplay": Documented("list"),
    },
    "003": {
        "worker:{browser}:{worker}": Documented(
            "hash", "browserType wsEndpoint endpoint status lastHeartbeat", ttl=60
        ),
        "cluster:active_connections": Documented("hash", "<browser>:<worker>"),
        "cluster:lifetime_connections": Documented("hash", "<browser>:<worker>"),
        "worker:cmd:{browser}:{worker}": Documented("string", ttl=60),
    },
    "004": {
        "pipeline:{pipeline}": Documented(
            "hash",
            "disk_usage disk_available fqdn hostname id load_average_1m load_average_5m load_average_15m "
            "mem_available mem_usage nickname pid python ts version",
        ),
        "{ident}": Documented(
            "hash",
            "bytes_downloaded concurrency death_timer delay_max delay_min error_count fetch_depth "
            "finished_at heartbeat grabber ignore_patterns_set_key items_downloaded items_queued "
            "last_acknowledged_heartbeat last_analyzed_log_entry last_broadcasted_log_entry "
            "last_trimmed_log_entry log_key log_score next_watermark no_phantomjs_smart_scroll "
            "phantomjs_scroll phantomjs_wait pipeline_id queued_at r1xx r2xx r3xx r4xx r5xx runk recorded_at "
            "settings_age slug started_at started_by started_in suppress_ignore_reports ts url user_agent",
        ),
        "{ident}_ignores": Documented("set"),
        "{ident}_log": Documented("zset"),
        "pipelines": Documented("list"),
        "jobs_completed": Documented("string"),
        "jobs_aborted": Documented("string"),
        "jobs_failed": Documented("string"),
        "tweets:done": Documented("zset"),
        "tweets:queue": Documented("zset"),
        "updates": Documented("channel"),
        "archivebot:job:{ident}": Documented("channel"),
    },
}

UNDOCUMENTED_FIELDS = {
    "worker:{browser}:{worker}": {"id", "startedAt"},
    "pipeline:{pipeline}": {"status", "jobs", "concurrent", "obstacle"},
    "{ident}": {
        *("aborted", "abort_requested", "failed", "no_offsite_links", "note", "url_file"),
        "warc_size",
        *("paused", "run"),
    },
}
"""What the original's own code reads, though its document does not name it; of the archive also ours."""

OWN_TTLS = {"pipeline:{pipeline}": 30}
"""Of what the original keeps for ever."""

BY_PATTERN: Mapping[str, Key[Any]] = {key.pattern: key for keys in CATALOG.values() for key in keys}


@pytest.mark.parametrize(
    ("number", "pattern"),
    [(number, pattern) for number, document in DOCUMENTS.items() for pattern in document],
)
def test_a_documented_key_is_declared_as_documented(number: str, pattern: str) -> None:
    documented = DOCUMENTS[number][pattern]

    key = BY_PATTERN[pattern]

    assert number in key.source.split(", ")
    assert key.kind.redis_type == documented.kind
    assert key.lifetime.expires == OWN_TTLS.get(pattern, documented.ttl)
    if documented.fields:
        undocumented = UNDOCUMENTED_FIELDS.get(pattern, set())
        assert [field for field in key.fields if field not in undocumented] == documented.fields.split()
        assert undocumented <= key.fields.keys()


@pytest.mark.parametrize("number", DOCUMENTS)
def test_no_key_is_ascribed_to_a_document_that_lacks_it(number: str) -> None:
    ascribed = {pattern for pattern, key in BY_PATTERN.items() if number in key.source.split(", ")}

    assert ascribed == set(DOCUMENTS[number])


def test_keys_beyond_the_documents_live_under_our_own_prefix() -> None:
    own = {pattern for pattern, key in BY_PATTERN.items() if key.source == "remuda"}

    # These are the originals' in practice, though not in their documents: see the declarations.
    strangers = {pattern for pattern in own if not pattern.startswith("remuda:")}
    assert strangers == {
        "{service}:utapireplay:lock",
        "pending",
        "pending-ao",
        "pending-large",
        "pending:{tag}",
        "working",
        "finish_notifications",
        "archivebot:pipeline_updates",
        "{service}:event:{resource}",
        "{service}:location:{resource}:locationStorage",
    }


def test_every_declaration_says_who_writes_it_and_what_it_means() -> None:
    for key in BY_PATTERN.values():
        assert key.meaning, key.pattern
        assert key.writer, key.pattern
        assert key.lifetime.ends, key.pattern
        assert key.fields or key.pattern == "remuda:bell:{topic}", key.pattern


DOCUMENTED_CODES = {
    ("node", "info"): "BOOT DSTART DALIVE LSINIT CLOSED HALT",
    ("node", "fail"): "DTIMEOUT DFAILURE STIMEOUT TERM",
    ("orchestrator", "info"): "SCHED",
    ("orchestrator", "fail"): "STARTFAIL",
    ("manager", "info"): "QUEUED NALLOC PENDING NALIVE",
    ("manager", "warn"): "CLEFT",
    ("manager", "fail"): "QUNAVAILABLE QTIMEOUT OTIMEOUT NTIMEOUT",
}


OWN_CODES = {
    ("node", "info"): "EVENT IGNORED",
    ("node", "warn"): "RFAILURE",
    ("orchestrator", "warn"): "RESCHED",
    ("proxy", "warn"): "CLOST NLOST",
}
"""The document names the proxy, but none of its codes, and has none for what a client tells or asks for in
vain, what a session survives, or a second attempt."""


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_component_has_the_documented_log_codes_at_each_level(component: str, level: str) -> None:
    codes = [entry.code for entry in LOG_CODES if (entry.component, entry.level) == (component, level)]

    documented, own = (known.get((component, level), "").split() for known in (DOCUMENTED_CODES, OWN_CODES))
    assert codes == [*documented, *own]


def test_a_log_code_alone_tells_its_component_and_level() -> None:
    assert len(BY_CODE) == len(LOG_CODES)
