"""`remuda usage`: what accounts and other resources used, as a table with a small chart, CSV or JSON."""

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from rich.text import Text

from remuda.accounts.model import read_duration
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json, table, table_console

TIMEOUT = 60.0
BARS = "▁▂▃▄▅▆▇█"
WIDTH, NARROWEST = 32, 8
"""Characters of a chart, at most and at least."""
GAP = 2
"""Characters between two columns."""
FINE = 3 * 86400
"""Seconds up to which usage is shown by the hour, and not by the day."""


def show_usage(
    herd: HerdAddress,
    *,
    resources: Sequence[str],
    service: str,
    level: str,
    measure: str,
    since: str,
    step: str,
    form: str,
) -> None:
    """Prints usage as `table`, `csv` or `json`."""
    step = step or ("hour" if read_duration(since) <= FINE else "day")
    query = {
        "service": service,
        "level": level,
        "resource": ",".join(resources),
        "measure": measure,
        "since": since,
        "step": step,
    }
    report = ask_herd(herd, f"/api/usage?{urlencode(query)}", timeout=TIMEOUT)
    if form == "json":
        print_json(report)
    elif form == "csv":
        _print_csv(report)
    else:
        _print_table(report, step)


def _print_table(report: Any, step: str) -> None:
    console = table_console()
    if not any(each["totals"] for each in report["usage"]):
        console.print(Text("no usage", style="dim"))
        return
    heads = ("service", report["usage"][0]["level"], "measure", "total")
    rows = list(_rows(report))
    shown = table(*heads, f"by {step}")
    shown.columns[3].justify = "right"
    # A chart of two lines cannot be read: it has to do with what the other columns leave of the line.
    shown.columns[4].no_wrap = True
    taken = sum(max(map(len, column)) + GAP for column in zip(heads, *(row[:4] for row in rows), strict=True))
    width = max(NARROWEST, min(WIDTH, console.width - taken - GAP))
    for *cells, series in rows:
        shown.add_row(*cells, Text(chart(series, width), style="cyan" if console.is_terminal else ""))
    console.print(shown)
    console.print(Text(f"{report['start'][:16]} to {report['end'][:16]} UTC", style="dim"))


def _rows(report: Any) -> Iterator[tuple[str, str, str, str, Sequence[int]]]:
    for each in report["usage"]:
        place = (each["service"], each["resource"])
        for measure, total in each["totals"].items():
            yield *place, measure, amount(measure, total), each["series"].get(measure, [])
        if each["gigabyteHours"] is not None:
            yield *place, "gigabyteHours", f"{each['gigabyteHours']:,.3f}", []


def _print_csv(report: Any) -> None:
    """As `GET /api/usage?format=csv` does."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["time", "service", "level", "resource", "measure", "value"])
    for each in report["usage"]:
        place = (each["service"], each["level"], each["resource"])
        if not report["times"]:
            writer.writerows((report["start"], *place, *total) for total in each["totals"].items())
        for measure, numbers in each["series"].items():
            for time, number in zip(report["times"], numbers, strict=True):
                writer.writerow((time, *place, measure, number))


def amount(measure: str, value: int) -> str:
    """A number as a person reads it: bytes in kB, MB and so on."""
    if "Bytes" not in measure and measure != "storageUtilized":
        return f"{value:,}"
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def chart(numbers: Sequence[int], width: int = WIDTH) -> str:
    """The numbers as a row of bars. More of them than fit are joined; of those the greatest is shown."""
    if not numbers:
        return ""
    joined = -(-len(numbers) // width)
    peaks = [max(numbers[start : start + joined]) for start in range(0, len(numbers), joined)]
    top = max(peaks)
    return "".join(" " if not peak else BARS[(peak * len(BARS) - 1) // top] for peak in peaks)
