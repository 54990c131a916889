"""What is fixed when a process starts. Every option is declared once, with its default and meaning, in the
section of the config that its room declares; its flag, its `REMUDA_*` environment variable and its place in
`remuda.toml` follow from its name.

Precedence: flag, then environment, then file, then default.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from remuda.base.errors import Broken, Misconfigured

ENV_PREFIX = "REMUDA_"
DEFAULT_FILE = Path("remuda.toml")

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Interval = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
S = TypeVar("S")


def option(default: Any, meaning: str, *, secret: bool = False, also: tuple[str, ...] = ()) -> Any:
    """A field of a section. `also` are variables of the same meaning that others have made a standard; ours
    comes before them."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "secret": secret, "also": also})


@dataclass(frozen=True, kw_only=True)
class HerdConfig:
    """What every process of a herd has to know."""

    host: str = option("127.0.0.1", "Address the front door listens on.")
    port: Port = option(4444, "Port of the front door; 0 means any free port.")
    listen: str = option(
        "",
        "Address that internal ports listen on: those of managers, apis, storages, nodes and workers. By "
        "default loopback; with a Redis on another machine, the address that this machine has towards it.",
    )
    advertise: str = option(
        "",
        "Host under which the rest of the herd reaches these internal ports; by default the address that "
        "they listen on.",
    )
    internal_tls_cert: str = option(
        "",
        "File with the certificate that internal ports show, and its chain, in PEM; it is read again when it "
        "changes. It has to be valid for the host that is advertised.",
    )
    internal_tls_key: str = option("", "File with the key of internal_tls_cert, in PEM.")
    internal_tls_ca: str = option(
        "",
        "File with the certificates, in PEM, of the authorities that internal ports are verified with. "
        "Ports of other machines that do not speak TLS are then refused.",
    )
    internal_tls_optional: bool = option(
        False,
        "Connect to internal ports that do not speak TLS although internal_tls_ca is given; for an upgrade.",
    )
    data: Path = option(Path(".remuda"), "Directory for everything that must survive a restart.")
    min_free_megabytes: Count = option(
        100,
        "Megabytes that must be free in the temporary directory, and for WebDriver in the data directory, "
        "or no session or connection is started.",
    )
    redis: str = option(
        "",
        "Redis to use instead of the embedded one: redis://, rediss://, unix:// or redis+sentinel://. It has "
        "to ask for a password, which ?password_file=FILE keeps out of the URL.",
        secret=True,
    )
    insecure_redis: bool = option(
        False,
        "Start browsers beside a Redis or a Sentinel that answers without a password: a client can then have "
        "its browser change what is in there.",
    )
    redis_megabytes: Count = option(
        0, "Memory limit of the embedded Redis in megabytes; 0 means a quarter of the machine's memory."
    )
    prefix: str = option("", "Prefix of every Redis key; several fleets can then share one Redis.")
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "warning", "Lowest level of events that are logged."
    )
    log_format: Literal["auto", "text", "json"] = option(
        "auto", "Format of the log; auto means text in a terminal and JSON elsewhere."
    )


class Config:
    """The options of a herd, by section: `config[HerdConfig].port`."""

    def __init__(self, *sections: object) -> None:
        """Sections are frozen dataclasses whose fields are made by `option`."""
        self._sections = {type(section): section for section in sections}

    def __getitem__(self, section: type[S]) -> S:
        try:
            return self._sections[section]  # type: ignore[return-value]
        except KeyError:
            raise Broken(f"The section {section.__name__} of the config was not loaded") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._sections == other._sections

    def value(self, name: str) -> Any:
        """The value of the option with this name."""
        return getattr(self._section_with(name), name)

    def replace(self, **values: Any) -> "Config":
        """The same config but for these options."""
        changed = dict(self._sections)
        for name, value in values.items():
            kind = type(self._section_with(name))
            changed[kind] = dataclasses.replace(changed[kind], **{name: value})  # type: ignore[type-var]
        return Config(*changed.values())

    def _section_with(self, name: str) -> object:
        for section in self._sections.values():
            if hasattr(section, name):
                return section
        raise Broken(f"No section of the config that was loaded has the option {name}")

    def environ(self) -> dict[str, str]:
        """The variables that make a child process load this very config, whatever else it finds."""
        # Defaults too: the child also reads the file and the variables that a flag has overruled here.
        return {env_name(each.name): str(self.value(each.name)) for each in options_of(self._sections)}


def options_of(sections: Iterable[type]) -> list[dataclasses.Field[Any]]:
    """Every option of these sections."""
    return [each for section in sections for each in dataclasses.fields(section)]


def env_name(name: str) -> str:
    """The environment variable of an option."""
    return ENV_PREFIX + name.upper()


def env_names(option: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Every environment variable of an option, the first before the others."""
    return (env_name(option.name), *option.metadata["also"])


def load_config(
    sections: Sequence[type],
    flags: Mapping[str, Any] | None = None,
    *,
    typed: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Config:
    """The config from flags (None: not given), environment and file; Misconfigured names what is wrong.
    `typed` has the flags of options that are typed otherwise than the option is called."""
    values: dict[str, tuple[Any, str]] = {}
    for name, value in _read_file(file, known=options_of(sections)).items():
        values[name] = (value, f"{name} in {file or DEFAULT_FILE}")
    values |= _read_environ(sections, os.environ if environ is None else environ)
    for name, value in (flags or {}).items():
        if value is not None:
            values[name] = (value, (typed or {}).get(name) or "--" + name.replace("_", "-"))
    return _make(sections, values)


def check_variables(sections: Sequence[type], environ: Mapping[str, str], *, others: Collection[str]) -> None:
    """Raises Misconfigured for a REMUDA_* variable that is neither an option nor one of `others`."""
    known = {env_name(each.name) for each in options_of(sections)}.union(others)
    for name in environ:
        if name.startswith(ENV_PREFIX) and name not in known:
            raise Misconfigured(f"There is no variable {name}{_nearest(name, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    # What all of them have in common says nothing about which is near.
    by_rest = {each.removeprefix(ENV_PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), by_rest, n=1)
    return f"; did you mean {by_rest[close[0]]}?" if close else ""


def inherit_config(sections: Sequence[type]) -> Config:
    """These sections of the config that the parent has handed down in the environment; files do not count."""
    return _make(sections, _read_environ(sections, os.environ))


def _read_environ(sections: Iterable[type], environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found = {}
    for each in options_of(sections):
        given = next((variable for variable in env_names(each) if variable in environ), None)
        if given is not None:
            found[each.name] = (environ[given], given)
    return found


def _make(sections: Iterable[type], values: Mapping[str, tuple[Any, str]]) -> Config:
    made = []
    for section in sections:
        types = get_type_hints(section, include_extras=True)
        given = {name: _convert(*values[name], types[name]) for name in types if name in values}
        made.append(section(**given))
    return Config(*made)


def _read_file(file: Path | None, *, known: Sequence[dataclasses.Field[Any]]) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if file is None:
            return {}
        raise Misconfigured(f"There is no config file {file}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    names = {each.name for each in known}
    if unknown := sorted(table.keys() - names):
        nearest = _nearest(unknown[0], names)
        raise Misconfigured(f"{path} has unknown options: {', '.join(unknown)}{nearest}")
    return table


def _convert(value: Any, origin: str, kind: Any) -> Any:
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise Misconfigured(f"{origin} is {value!r}; it can be {', '.join(get_args(kind))}")
    try:
        if kind is Path:
            return Path(value)
        return msgspec.convert(value, kind, strict=False)
    except (TypeError, msgspec.ValidationError) as error:
        raise Misconfigured(f"{origin} is {value!r}; it must be {_wanted(kind)}") from error


def _wanted(kind: Any) -> str:
    """What an option takes, in words."""
    if get_origin(kind) is not Annotated:
        return _KINDS.get(kind, "text")
    plain, limits = get_args(kind)
    words = _KINDS.get(plain, "text")
    if limits.pattern is not None:
        return f"{words} of the form {limits.pattern}"
    return (
        f"{words}, {limits.ge} or more" if limits.le is None else f"{words} from {limits.ge} to {limits.le}"
    )
