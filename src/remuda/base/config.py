"""What is fixed when a process starts. Every option is declared here once, with its default and meaning;
its flag, its `REMUDA_*` environment variable and its place in `remuda.toml` follow from its name.

Precedence: flag, then environment, then file, then default.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from remuda.base.errors import Misconfigured

ENV_PREFIX = "REMUDA_"
DEFAULT_FILE = Path("remuda.toml")

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Interval = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]
FrameRate = Annotated[int, msgspec.Meta(ge=1, le=30)]
Pixels = Annotated[str, msgspec.Meta(pattern=r"^\d{2,4}x\d{2,4}$")]
BrowserType = Literal["chromium", "firefox", "webkit"]
Isolation = Literal["shared", "own"]

BEATS_PER_KEY_TTL = 3
"""A worker's key must outlive two lost beats."""


def _option(default: Any, meaning: str, *, secret: bool = False, also: tuple[str, ...] = ()) -> Any:
    """`also` are variables of the same meaning that others have made a standard; ours comes before them."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "secret": secret, "also": also})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The options of a herd."""

    host: str = _option("127.0.0.1", "Address the front door listens on.")
    port: Port = _option(4444, "Port of the front door; 0 takes a free one.")
    data: Path = _option(Path(".remuda"), "Directory for everything that must survive a restart.")
    redis: str = _option(
        "",
        "Redis to use instead of the embedded one: redis://, rediss://, unix:// or redis+sentinel://.",
        secret=True,
    )
    redis_megabytes: Count = _option(
        0, "Megabytes that the embedded Redis may take; 0 means a quarter of the machine's memory."
    )
    waiting_megabytes: Interval = _option(
        256,
        "Megabytes in Redis for large capabilities, such as extensions, of sessions that wait for a browser.",
    )
    prefix: str = _option("", "Put before every Redis key, so that several fleets can share one Redis.")
    slots: Count = _option(0, "WebDriver sessions that run at the same time; 0 means one per CPU core.")
    min_free_megabytes: Count = _option(
        100,
        "Megabytes that must be free in the temporary and the data directory for a session to be started.",
    )
    body_megabytes: Interval = _option(
        256,
        "Megabytes of request bodies that a manager holds at a time; further requests wait, then get 503.",
    )
    warm: Count = _option(
        0, "Browsers kept waiting, started, for sessions with default capabilities; each takes its memory."
    )
    browser_hang: Count = _option(
        60, "Seconds after which a session ends whose browser or driver does not answer; 0 means never."
    )
    gateway_drain: Interval = _option(
        10,
        "Seconds that a gateway which shuts down gives its clients; WebSockets then end with 1001.",
    )
    cdp_reconnect: Annotated[int, msgspec.Meta(ge=0, le=86400)] = _option(
        0,
        "Seconds for which a browser at /cdp/<id> waits for its client to come back, once its last WebSocket "
        "is closed; `?keep=60s` sets it for one.",
    )
    orchestrator_drain: Count = _option(
        300,
        "Seconds that an orchestrator which shuts down gives its sessions to end, in a process of its own.",
    )
    insecure: bool = _option(False, "Listen beyond loopback although anybody there may then use the herd.")
    allow_origins: str = _option(
        "",
        "Web origins whose pages may talk to the front door, separated by commas; its own need not be named.",
    )
    chromium: str = _option("", "Chromium or Chrome to run; by default the one that is found.")
    chromedriver: str = _option("", "ChromeDriver to run; by default the one that is found.")
    headless_shell: str = _option("", "Headless shell of Chromium to run; by default the one that is found.")
    firefox: str = _option("", "Firefox to run; by default the one that is found.")
    geckodriver: str = _option("", "geckodriver to run; by default the one that is found.")
    webkit: str = _option("", "MiniBrowser of WebKitGTK to run; by default the one that is found.")
    chromium_args: str = _option("", "More arguments for every Chromium, separated by spaces.")
    allow_browser_args: str = _option(
        "",
        "Switches (without dashes), preferences, variables and driver options, separated by commas, that "
        "clients may use beyond those known to be harmless; * allows all.",
    )
    browser_reads: str = _option(
        "",
        "Directories, separated by colons, that browsers may read besides the system's: for file:// pages.",
    )
    browser_uids: str = _option(
        "58000-58999",
        "Users that browsers run as when root starts the herd, one for each; empty means root itself.",
    )
    headless: bool = _option(
        True, "Run browsers without a window unless the client says otherwise.", also=("HEADLESS",)
    )
    record: bool = _option(False, "Record a video of every session whose client does not say otherwise.")
    record_size: Pixels = _option("1280x720", "Pixels of a video whose client does not name a size.")
    record_rate: FrameRate = _option(10, "Frames a second of a video whose client does not name a rate.")
    gc_interval: Interval = _option(60, "Seconds between two sweeps of what the dead left behind.")
    session_retention: Count = _option(
        604800, "Seconds for which a session that has ended is kept: its log, times and capabilities."
    )
    storage: str = _option("", "Directory for artifacts; by default `storage` in the data directory.")
    storage_megabytes: Count = _option(20_000, "Megabytes that artifacts may take; 0 means the whole disk.")
    storage_retention: Count = _option(
        2_592_000, "Seconds for which artifacts are kept after their last change; 0 means for ever."
    )
    otlp_endpoint: str = _option(
        "",
        "OpenTelemetry collector that gets traces, by OTLP over HTTP in JSON, such as http://localhost:4318.",
        also=("OTEL_EXPORTER_OTLP_ENDPOINT",),
    )
    otlp_traces_endpoint: str = _option(
        "",
        "The whole URL for traces, where it is not `/v1/traces` below `otlp_endpoint`.",
        also=("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",),
    )
    otlp_headers: str = _option(
        "",
        "Headers for the collector, as name=value,name=value.",
        secret=True,
        also=("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
    )
    otlp_attributes: str = _option(
        "",
        "What is said of every process with its traces, as name=value,name=value.",
        also=("OTEL_RESOURCE_ATTRIBUTES",),
    )
    trace_sample: Share = _option(
        1.0, "Share of the traces that begin here which is kept; traces of clients are as they say."
    )
    browser: BrowserType = _option("chromium", "Browser of a worker.", also=("BROWSER_TYPE",))
    playwright_isolation: Isolation = _option(
        "shared",
        "Whether Playwright clients share a worker's browser or get one of their own each, unless they ask "
        "for one of their own; of a worker: which of both it serves.",
    )
    playwright_warm: Count = _option(
        0, "Browsers of one's own that a worker keeps started for its next clients; each takes its memory."
    )
    playwright_timeout: Count = _option(
        0, "Seconds after which a Playwright connection is ended; 0 means never."
    )
    playwright_idle: Count = _option(
        0, "Seconds without a message from its client after which a connection is ended; 0 means never."
    )
    playwright_workers: Count = _option(
        1, "Workers that `remuda up` starts for each browser, once a client waits for it; 0 means none."
    )
    playwright_eager: str = _option(
        "", "Browsers, separated by commas, whose workers `remuda up` starts without being asked."
    )
    playwright_browser: BrowserType = _option(
        "chromium", "Browser of Playwright clients that name none.", also=("DEFAULT_BROWSER_TYPE",)
    )
    playwright_concurrent: Interval = _option(
        5, "Connections that a worker serves at the same time.", also=("MAX_CONCURRENT_SESSIONS",)
    )
    playwright_lifetime: Interval = _option(
        50, "Connections after which a worker is due to restart.", also=("MAX_LIFETIME_SESSIONS",)
    )
    playwright_restart_share: Percent = _option(
        25, "Percent of a browser's workers, at least one, that may be restarting at the same time."
    )
    playwright_wait: Interval = _option(
        30, "Seconds for which a client waits for a free place.", also=("WORKER_SELECT_TIMEOUT",)
    )
    playwright_expected: str = _option(
        "",
        "Browsers, separated by commas, whose workers something else than Remuda starts when clients wait, "
        "such as a scaler; clients of a browser that nothing can start are refused at once.",
    )
    playwright_queue: Count = _option(100, "Clients that may wait for a browser at the same time.")
    playwright_dial: Interval = _option(
        5, "Seconds within which a worker must answer before another one is tried."
    )
    playwright_lease: Interval = _option(
        20, "Seconds after which the connections of a gateway that died are no longer counted."
    )
    playwright_beat: Interval = _option(
        5, "Seconds between two beats of a worker.", also=("HEARTBEAT_INTERVAL",)
    )
    playwright_key_ttl: Interval = _option(
        60, "Seconds for which a worker is believed alive after a beat.", also=("REDIS_KEY_TTL",)
    )
    playwright_command_ttl: Interval = _option(
        60, "Seconds for which a worker is told to shut down.", also=("SHUTDOWN_COMMAND_TTL",)
    )
    playwright_drain: Interval = _option(
        300, "Seconds that a worker which shuts down gives its connections to end."
    )
    playwright_reaper_interval: Interval = _option(
        300,
        "Seconds between two searches for workers that died without a word.",
        also=("REAPER_RUN_INTERVAL",),
    )
    playwright_host: str = _option(
        "",
        "Host at which gateways reach this machine's workers; by default its loopback.",
        also=("PRIVATE_HOSTNAME",),
    )
    playwright_port: Port = _option(0, "Port of a worker; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = _option("warning", "Least severe event logged.")
    log_format: Literal["auto", "text", "json"] = _option(
        "auto", "How log events are written; auto is text in a terminal and JSON elsewhere."
    )

    def __post_init__(self) -> None:
        if self.playwright_key_ttl < BEATS_PER_KEY_TTL * self.playwright_beat:
            raise Misconfigured(
                f"playwright_key_ttl (REDIS_KEY_TTL) is {self.playwright_key_ttl}, which is less than "
                f"{BEATS_PER_KEY_TTL} beats of {self.playwright_beat} seconds"
            )

    @property
    def storage_directory(self) -> Path:
        """Where artifacts are."""
        return Path(self.storage) if self.storage else self.data / "storage"

    def environ(self) -> dict[str, str]:
        """The variables that make a child process load this very config, whatever else it finds."""
        # Defaults too: the child also reads the file and the variables that a flag has overruled here.
        return {env_name(option.name): str(getattr(self, option.name)) for option in dataclasses.fields(self)}


def env_name(option: str) -> str:
    """The environment variable of an option."""
    return ENV_PREFIX + option.upper()


def env_names(option: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Every environment variable of an option, the first before the others."""
    return (env_name(option.name), *option.metadata["also"])


def load_config(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    """The config from flags (None: not given), environment and file; Misconfigured names what is wrong."""
    environ = os.environ if environ is None else environ
    values: dict[str, tuple[Any, str]] = {}
    for name, value in _read_file(file).items():
        values[name] = (value, f"{name} in {file or DEFAULT_FILE}")
    for option in dataclasses.fields(Config):
        for variable in env_names(option):
            if variable in environ:
                values[option.name] = (environ[variable], variable)
                break
    for name, value in (flags or {}).items():
        if value is not None:
            values[name] = (value, "--" + name.replace("_", "-"))
    types = get_type_hints(Config, include_extras=True)
    return Config(**{name: _convert(value, types[name], origin) for name, (value, origin) in values.items()})


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if file is None:
            return {}
        raise Misconfigured(f"There is no config file {file}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    known = {option.name for option in dataclasses.fields(Config)}
    if unknown := sorted(table.keys() - known):
        raise Misconfigured(f"{path} has unknown options: {', '.join(unknown)}")
    return table


def _convert(value: Any, kind: Any, origin: str) -> Any:
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise Misconfigured(f"{origin} is {value!r}; it can be {', '.join(get_args(kind))}")
    try:
        if kind is Path:
            return Path(value)
        return msgspec.convert(value, kind, strict=False)
    except (TypeError, msgspec.ValidationError) as error:
        raise Misconfigured(f"{origin} is {value!r}: {error}") from error
