"""A strict reader of Prometheus' text format, version 0.0.4: what Prometheus would stumble over fails."""

import math
import re
from dataclasses import dataclass, field

_COMMENT = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_UNESCAPED = {"n": "\n", '"': '"', "\\": "\\"}
_KINDS = ("counter", "gauge", "histogram")

Labels = frozenset[tuple[str, str]]


@dataclass
class Metric:
    """A family with its samples, by name (which ends in a suffix in a histogram) and labels."""

    help: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Metric]:
    """The families of an exposition by name; AssertionError says what is wrong with it."""
    assert text.endswith("\n"), "the last line has no end"
    families: dict[str, Metric] = {}
    current = ""
    for line in text[:-1].split("\n"):
        if comment := _COMMENT.fullmatch(line):
            current = _read_comment(families, *comment.groups())
        else:
            _read_sample(families, current, line)
    for name, family in families.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _read_comment(families: dict[str, Metric], what: str, name: str, text: str) -> str:
    if what == "HELP":
        assert name not in families, f"{name} comes twice"
        families[name] = Metric(help=text)
        return name
    assert not families[name].kind, f"{name} has two types"
    assert not families[name].samples, f"{name} has its type after its samples"
    assert text in _KINDS, f"{name} is a {text}"
    families[name].kind = text
    return name


def _read_sample(families: dict[str, Metric], current: str, line: str) -> None:
    sample = _SAMPLE.fullmatch(line)
    assert sample, f"no sample: {line!r}"
    name, labels, value = sample.groups()
    family = families[current]
    suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
    assert name in {current + suffix for suffix in suffixes}, f"{name} is inside of {current}"
    key = name, _read_labels(labels or "")
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = float(value)
    assert math.isfinite(family.samples[key]), line


def _read_labels(text: str) -> Labels:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        label = _LABEL.match(text, position)
        assert label, f"no label: {text[position:]!r}"
        assert label[1] not in labels, f"label {label[1]} comes twice"
        labels[label[1]] = re.sub(r"\\(.)", lambda escape: _UNESCAPED[escape[1]], label[2])
        position = label.end()
    return frozenset(labels.items())


def _check_histogram(name: str, family: Metric) -> None:
    histograms: dict[Labels, dict[float, float]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bound = dict(labels)["le"]
            histograms.setdefault(labels - {("le", bound)}, {})[float(bound)] = value
    for labels, buckets in histograms.items():
        _check_buckets(name, family, labels, buckets)


def _check_buckets(name: str, family: Metric, labels: Labels, buckets: dict[float, float]) -> None:
    bounds = list(buckets)
    counts = list(buckets.values())
    assert bounds == sorted(bounds), f"{name}: buckets out of order"
    assert counts == sorted(counts), f"{name}: buckets that are not cumulative"
    assert bounds[-1] == math.inf, f"{name} has no last bucket"
    assert counts[-1] == family.samples[f"{name}_count", labels], f"{name}: +Inf is not the count"
    assert (f"{name}_sum", labels) in family.samples, f"{name} has no sum"


def value(families: dict[str, Metric], name: str, *, of: str = "", **labels: str) -> float | None:
    """The value of a sample; None when there is no such sample. `of` is the family of a histogram's."""
    return families[of or name].samples.get((name, frozenset(labels.items())))
