"""The keys of archive/: pipelines, jobs with their ignores and logs, queues, totals, channels, and runs.

Those of the document follow no prefix: a job's record is called by its bare ident. That its ident has at
least 25 characters is what keeps it apart from every other key. The queues and some others are not in the
document, but the original's code uses them under these names. What is ours is under `remuda:`.
"""

from remuda.keyspace import rules
from remuda.keyspace.key import (
    ChannelName,
    HashName,
    Key,
    ListName,
    SetName,
    StringName,
    ZSetName,
    expires,
    until,
)

JOB_LINGERS = 172_800
"""Seconds for which a job's hash, ignores and log stay after its end, as in the original."""
PIPELINE_TTL = 30

_PARTS = {"ident": "[a-z0-9]{25,}", "pipeline": "[0-9a-f]{1,64}"}
_RUN = {"run": "[a-z0-9]{25,}-[1-9][0-9]{0,8}"}
_TAG = {"tag": "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"}
_JOB_ENDED = until("the job has ended", lingers=JOB_LINGERS)
_EMPTY = until("its last member leaves")
_FOREVER = until("an operator deletes it")

PIPELINE = Key(
    "pipeline:{pipeline}",
    HashName,
    meaning="A pipeline and the state of the machine it runs on",
    writer="archive/pipeline",
    lifetime=expires(PIPELINE_TTL, ends="refreshed by its pipeline, deleted when that leaves"),
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
        "status": "`Running`, or `Stopping` when it takes no more jobs. Not documented, but in the original",
        "jobs": "number of jobs that it runs. Ours",
        "concurrent": "number of jobs that it can run. Ours",
        "obstacle": "why it takes no jobs for now, such as a full disk; empty if nothing is in the way. Ours",
    },
    source="004",
    parts=_PARTS,
)
PIPELINES = Key(
    "pipelines",
    ListName,
    meaning="Pipelines. Deprecated: written by pipelines, but not read",
    writer="archive/pipeline; its sweep removes those that were killed",
    lifetime=_EMPTY,
    fields={"member": "key of the pipeline"},
    source="004",
)

JOB = Key(
    "{ident}",
    HashName,
    meaning="One site to archive: what was asked for, its live settings, and how far it has come",
    writer="archive/jobs, archive/settings, archive/pipeline, archive/logs",
    lifetime=_JOB_ENDED,
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
        "next_watermark": "a threshold for the number of queued URLs: the next hundred thousand; unused",
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
        "aborted": "`true` once the job was aborted. Not documented, but in the original; so are the next",
        "abort_requested": "`true` as soon as it is to be aborted",
        "failed": "`true` if the job has failed",
        "no_offsite_links": "`true` if links that leave the site are not followed",
        "note": "why the job was asked for",
        "url_file": "the file of URLs for `!ao <` and `!a <`; otherwise absent",
        "warc_size": "bytes of the WARC files so far",
        "paused": "`true` while the job is paused. Ours; so are the next",
        "run": "number of the run that this record is about",
    },
    source="004",
    parts=_PARTS,
)
JOB_IGNORES = Key(
    "{ident}_ignores",
    SetName,
    meaning="URLs that the job leaves out",
    writer="archive/jobs, archive/settings",
    lifetime=_JOB_ENDED,
    fields={"member": "Python regex"},
    source="004",
    parts=_PARTS,
)
JOB_LOG = Key(
    "{ident}_log",
    ZSetName,
    meaning="What the job did; the last thousand entries stay when it is trimmed",
    writer="archive/logs",
    lifetime=_JOB_ENDED,
    fields={"member": "JSON log entry with its index as `seq`, scored by its index"},
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
    writer="archive/jobs, if `archive_announce` is set; its sweep trims",
    lifetime=_EMPTY,
    fields={"member": "text, scored by when it was queued in Unix seconds"},
    source="004",
)
TWEETS_DONE = Key(
    "tweets:done",
    ZSetName,
    meaning="Announcements of jobs that were posted",
    writer="the announcer; a sweep trims",
    lifetime=_EMPTY,
    fields={"member": "text, scored by when it was posted in Unix seconds"},
    source="004",
)

UPDATES = Key(
    "updates",
    ChannelName,
    meaning="A job has new log entries; at most ten times a second for each job",
    writer="archive/logs",
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

# Not in the document, but used by the original under these names

PENDING = Key(
    "pending",
    ListName,
    meaning="Jobs that wait for a pipeline; the last is the next",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
)
PENDING_AO = Key(
    "pending-ao",
    ListName,
    meaning="The same for shallow jobs",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
)
PENDING_LARGE = Key(
    "pending-large",
    ListName,
    meaning="The same for jobs that only pipelines for large jobs take",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
)
PENDING_TAG = Key(
    "pending:{tag}",
    ListName,
    meaning="The same for jobs that only pipelines take whose nickname contains the tag",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
    parts=_TAG,
)
WORKING = Key(
    "working",
    ListName,
    meaning="Jobs that pipelines run",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
)
FINISH_NOTIFICATIONS = Key(
    "finish_notifications",
    ListName,
    meaning="The ends of jobs, for those that tell users of them; the last thousand stay",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "JSON: `ident`, `url`, `started_by`, `started_in`, `aborted`, and `failed` if it has"},
)
PIPELINE_UPDATES = Key(
    "archivebot:pipeline_updates",
    ChannelName,
    meaning="A pipeline has written its record",
    writer="archive/pipeline",
    lifetime=until("it is heard"),
    fields={"value": "key of the pipeline"},
)

# Ours

RUN = Key(
    "remuda:run:{run}",
    HashName,
    meaning="A run of a job: who asked for it, how it went, where its files are. It outlives the job's hash",
    writer="archive/jobs, archive/pipeline",
    lifetime=_FOREVER,
    fields={
        "ident": "the job",
        "number": "which run of the job: 1, 2, ...",
        "account": "the account that it belongs to",
        "token": "name of the token with which it was asked for; empty where none is needed",
        "address": "address of the client",
        "url": "the target",
        "urls": "all start URLs, as JSON, where there are several",
        "servers": "the servers that its credentials are for, as JSON, where there are any",
        "depth": "`inf`, `shallow` or a number",
        "note": "why it was asked for",
        "order": "what was asked for beyond the documented fields, as JSON",
        "queue": "the queue that it waits in",
        "state": "`queued`, `running`, `completed`, `aborted` or `failed`",
        "reason": "why it failed, or how it ended; empty where there is nothing to say",
        "queuedAt": "Unix time with fraction, when it was queued",
        "startedAt": "Unix time with fraction, when it was first started",
        "finishedAt": "Unix time with fraction, when it ended",
        "pipeline": "key of the pipeline that runs it, or ran it last; not one of other software",
        "host": "name of the machine whose disk has its frontier",
        "hostUntil": "Unix seconds until which only that machine may resume it",
        "deaths": "how many pipelines have died while they ran it",
        "shipped": "number of its own log entries that the pipeline has sent",
        "current": "URLs that are being fetched, as JSON",
        "counts": "totals of the crawl, as JSON",
        "droppedIgnores": "ignore patterns that took too long, as JSON; they are not used again in this run",
        "settings": "the settings at the end, as JSON",
        "files": "the finished files, as JSON: name, kind, size, sha256",
        "storage": "id of the storage that has the files",
    },
    parts=_RUN,
)
CREDENTIALS = Key(
    "remuda:credentials:{ident}",
    ListName,
    meaning="Users and passwords in the URLs that a job was asked for with. Only its pipeline reads them",
    writer="archive/jobs",
    lifetime=until("the job has ended"),
    fields={"member": "URL with user and password; of several for one server the first counts"},
    parts=_PARTS,
)
RUNS = Key(
    "remuda:runs:{ident}",
    ZSetName,
    meaning="The runs of a job",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"member": "number of the run, scored by itself"},
    parts=_PARTS,
)
ALL_RUNS = Key(
    "remuda:runs",
    ZSetName,
    meaning="Every run of every account, so that no scan is needed",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"member": "id of the run, scored by when it was queued in Unix seconds"},
)
ACCOUNT_RUNS = Key(
    "remuda:runs:of:{account}",
    ZSetName,
    meaning="Every run of an account",
    writer="archive/jobs",
    lifetime=_FOREVER,
    fields={"member": "id of the run, scored by when it was queued in Unix seconds"},
    parts={"account": rules.ACCOUNT},
)
OPEN_JOBS = Key(
    "remuda:jobs:open:{account}",
    SetName,
    meaning="The jobs of an account that have not ended; their number is limited",
    writer="archive/jobs",
    lifetime=_EMPTY,
    fields={"member": "ident"},
    parts={"account": rules.ACCOUNT},
)
JOB_TAGS = Key(
    "remuda:jobs:tags",
    SetName,
    meaning="The tags for which jobs wait or waited, so that no scan is needed",
    writer="archive/jobs; a sweep adds those of other software and removes those of empty queues",
    lifetime=_EMPTY,
    fields={"member": "tag, see `pending:{tag}`"},
)
JOB_LINES = Key(
    "remuda:job:lines:{ident}",
    ChannelName,
    meaning="New log entries of a job, as they are broadcasted",
    writer="archive/logs",
    lifetime=until("it is heard"),
    fields={"value": "JSON list of entries"},
    parts=_PARTS,
)
DRAINING_PIPELINES = Key(
    "remuda:pipelines:draining",
    SetName,
    meaning="Pipelines that are to take no more jobs, and to leave after those they have",
    writer="archive/pipelines; its sweep removes those that have left",
    lifetime=_EMPTY,
    fields={"member": "key of the pipeline"},
)
METRICS_ARCHIVE = Key(
    "remuda:metrics:archive",
    HashName,
    meaning="What all jobs have done",
    writer="archive/logs, archive/pipeline",
    lifetime=_FOREVER,
    fields={
        "responses": "responses and failures that were logged",
        "errors": "those of them with a status of 400 or more, or without a response",
        "bytes": "bytes downloaded",
        "deaths": "jobs whose pipeline died",
    },
)
