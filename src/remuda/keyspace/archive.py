"""The keys of archive/: pipelines, jobs with their ignores and logs, totals, and the two channels.

They follow no prefix: a job's record is called by its bare ident. That its ident has at least 25
characters is what keeps it apart from every other key.
"""

from remuda.keyspace.key import (
    ChannelName,
    HashName,
    Key,
    ListName,
    SetName,
    StringName,
    ZSetName,
    until,
)

_PARTS = {"ident": "[a-z0-9]{25,}", "pipeline": "[0-9a-f]{1,64}"}
_JOB_PURGED = until("ops/gc purges the finished job")
_FOREVER = until("an operator deletes it")

PIPELINE = Key(
    "pipeline:{pipeline}",
    HashName,
    meaning="A pipeline and the state of the machine it runs on",
    writer="archive/pipeline",
    lifetime=until("its pipeline stops, or ops/gc finds its `ts` stale"),
    fields={
        "disk_usage": "decimal, % of the pipeline's filesystem in use",
        "disk_available": "bytes available on the pipeline's filesystem",
        "fqdn": "FQDN of the host running the pipeline",
        "hostname": "short name of the host",
        "id": "the pipeline's id; always matches the key",
        "load_average_1m": "decimal, load average over the past minute",
        "load_average_5m": "decimal, load average over the past 5 minutes",
        "load_average_15m": "decimal, load average over the past 15 minutes",
        "mem_available": "bytes of memory available on the host",
        "mem_usage": "decimal, % of memory in use on the host",
        "nickname": "the pipeline's nickname",
        "pid": "id of the pipeline's process",
        "python": "version of Python running the pipeline",
        "ts": "Unix time, the last time this record was updated",
        "version": "the pipeline's version",
    },
    source="004",
    parts=_PARTS,
)
PIPELINES = Key(
    "pipelines",
    ListName,
    meaning="Pipeline names. Deprecated: kept up by pipelines, read by nobody",
    writer="archive/pipeline",
    lifetime=until("its last member leaves"),
    fields={"member": "pipeline name"},
    source="004",
)

JOB = Key(
    "{ident}",
    HashName,
    meaning="One site to archive: what was asked for, its live settings, and how far it has come",
    writer="archive/jobs, archive/settings, archive/pipeline, archive/logs",
    lifetime=_JOB_PURGED,
    fields={
        "bytes_downloaded": "bytes downloaded from the target site",
        "concurrency": "current number of concurrent downloaders",
        "death_timer": "number of liveness checks that have gone without a response",
        "delay_max": "maximum delay between two requests on a downloader, in ms",
        "delay_min": "minimum delay between two requests on a downloader, in ms",
        "error_count": "number of error (4xx, 5xx) responses encountered",
        "fetch_depth": "`shallow` for `!ao` jobs, `inf` for `!a` jobs",
        "finished_at": "Unix time with fraction, when the job finished; absent while it runs",
        "heartbeat": "set by the pipeline, incremented at each beat",
        "grabber": "`phantomjs` for jobs that need a browser; otherwise absent",
        "ignore_patterns_set_key": "the key that holds this job's ignore patterns",
        "items_downloaded": "number of 2xx and 3xx responses",
        "items_queued": "number of URLs encountered in the job",
        "last_acknowledged_heartbeat": "set by the backend, the last beat it has seen",
        "last_analyzed_log_entry": "index of the last log entry analyzed",
        "last_broadcasted_log_entry": "index of the last log entry broadcasted over the firehose",
        "last_trimmed_log_entry": "index of the last log entry trimmed",
        "log_key": "the key that holds this job's log entries",
        "log_score": "the current log entry index",
        "next_watermark": "a threshold for the number of queued URLs; unused",
        "no_phantomjs_smart_scroll": "boolean, whether smart scrolling is off",
        "phantomjs_scroll": "maximum number of times to scroll a page in the browser",
        "phantomjs_wait": "maximum seconds between two interactions with a page in the browser",
        "pipeline_id": "the pipeline that runs this job, the id of a `pipeline:{pipeline}` key",
        "queued_at": "Unix time with fraction, when the job was queued",
        "r1xx": "number of 1xx responses",
        "r2xx": "number of 2xx responses",
        "r3xx": "number of 3xx responses",
        "r4xx": "number of 4xx responses",
        "r5xx": "number of 5xx responses",
        "runk": "number of responses with an unknown HTTP status code",
        "recorded_at": "Unix time with fraction. Deprecated: when the job was logged to CouchDB",
        "settings_age": "version of the job's settings, incremented at each change",
        "slug": "base name of the WARC and JSON files, such as `twitter.com-inf`",
        "started_at": "Unix time with fraction, when a pipeline started the job",
        "started_by": "the user who submitted the job",
        "started_in": "where the job was submitted, such as a channel",
        "suppress_ignore_reports": "boolean, whether matches of ignore patterns go unreported",
        "ts": "Unix time with fraction, the last update received from the pipeline",
        "url": "the target, or the file of URLs for `!ao <` and `!a <`",
        "user_agent": "the User-Agent to send; empty for the default",
    },
    source="004",
    parts=_PARTS,
)
JOB_IGNORES = Key(
    "{ident}_ignores",
    SetName,
    meaning="URLs that the job leaves out",
    writer="archive/ignores",
    lifetime=_JOB_PURGED,
    fields={"member": "Python regex"},
    source="004",
    parts=_PARTS,
)
JOB_LOG = Key(
    "{ident}_log",
    ZSetName,
    meaning="What the job did, until it has been analyzed, broadcasted and trimmed",
    writer="archive/pipeline; archive/logs trims",
    lifetime=_JOB_PURGED,
    fields={"member": "JSON log entry, scored by its index"},
    source="004",
    parts=_PARTS,
)

JOBS_COMPLETED = Key(
    "jobs_completed",
    StringName,
    meaning="Jobs that made it through the whole pipeline",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"value": "number of jobs"},
    source="004",
)
JOBS_ABORTED = Key(
    "jobs_aborted",
    StringName,
    meaning="Jobs that were ended by `!abort`",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"value": "number of jobs"},
    source="004",
)
JOBS_FAILED = Key(
    "jobs_failed",
    StringName,
    meaning="Jobs that crashed and were reaped",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"value": "number of jobs"},
    source="004",
)
TWEETS_QUEUE = Key(
    "tweets:queue",
    ZSetName,
    meaning="Announcements of jobs that are still to be posted",
    writer="archive/chat",
    lifetime=until("its last member leaves"),
    fields={"member": "text, scored by when it was queued in Unix seconds"},
    source="004",
)
TWEETS_DONE = Key(
    "tweets:done",
    ZSetName,
    meaning="Announcements of jobs that were posted",
    writer="archive/chat; ops/gc trims",
    lifetime=until("its last member leaves"),
    fields={"member": "text, scored by when it was posted in Unix seconds"},
    source="004",
)

UPDATES = Key(
    "updates",
    ChannelName,
    meaning="A job has new log entries",
    writer="archive/pipeline",
    lifetime=until("it is heard"),
    fields={"value": "the job's ident"},
    source="004",
)
JOB_SETTINGS = Key(
    "archivebot:job:{ident}",
    ChannelName,
    meaning="The job's settings have changed; a listener with an older version reads them again",
    writer="archive/settings",
    lifetime=until("it is heard"),
    fields={"value": "the new `settings_age`"},
    source="004",
    parts=_PARTS,
)
