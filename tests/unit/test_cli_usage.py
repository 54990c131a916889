"""How `remuda usage` writes numbers."""

import pytest

from remuda.base.errors import InvalidArgument
from remuda.cli.accounts import read_quotas
from remuda.cli.usage import _print_table, amount, chart


@pytest.mark.parametrize(
    ("measure", "value", "text"),
    [
        ("commands", 12345, "12,345"),
        ("incomingBytes", 999, "999 B"),
        ("incomingBytes", 1500, "1.5 kB"),
        ("storageUtilized", 2_500_000_000, "2.5 GB"),
        ("storageUtilized", 3_000_000_000_000, "3.0 TB"),
    ],
)
def test_numbers_are_written_for_people(measure: str, value: int, text: str) -> None:
    assert amount(measure, value) == text


def test_a_chart_shows_nothing_as_nothing_and_the_greatest_as_a_full_bar() -> None:
    assert chart([0, 1, 4, 8]) == " ▁▄█"
    assert chart([]) == ""
    assert chart([0, 0]) == "  "


def test_a_long_chart_keeps_its_peaks() -> None:
    assert chart([0, 0, 9, 0, 0, 0, 0, 3], width=4) == " █ ▃"


def report_of(**totals: int) -> dict[str, object]:
    usage = {"service": "s3", "level": "accounts", "resource": "web-team", "gigabyteHours": None}
    series = {name: list(range(24)) for name in totals}
    times = {"start": "2026-01-01T00:00:00.000Z", "end": "2026-01-02T00:00:00.000Z"}
    return {**times, "usage": [{**usage, "totals": totals, "series": series}]}


@pytest.mark.parametrize("columns", [66, 80, 200])
def test_each_measure_takes_one_line_of_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    _print_table(report_of(ListBucketMultipartUploads=276, GetObject=276), "hour")

    head, *rows, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["service", "accounts", "measure", "total", "by", "hour"]
    assert [row.split()[2] for row in rows] == ["ListBucketMultipartUploads", "GetObject"]
    assert all(row.rstrip().endswith("█") for row in rows)


def test_an_account_without_usage_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(report_of(), "hour")

    assert capsys.readouterr().out.strip() == "no usage"


def test_quotas_are_written_as_a_person_says_them() -> None:
    hard = ["grid.browserSeconds=36000/day", "artifacts.storageUtilized=10GB"]

    assert read_quotas(hard=hard, soft=["grid.browserSeconds=30k/day"]) == {
        "grid.browserSeconds": {"hard": 36000, "soft": 30000, "period": "day"},
        "artifacts.storageUtilized": {"hard": 10**10},
    }
    assert read_quotas(hard=["grid.commands=none"], soft=[]) == {"grid.commands": {"hard": None}}


@pytest.mark.parametrize(
    "text", ["", "grid.commands", "grid.commands=x", "commands=1/day", "grid.commands=1/year"]
)
def test_what_is_no_quota_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a quota"):
        read_quotas(hard=[text], soft=[])
