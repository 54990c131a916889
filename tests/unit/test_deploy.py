"""What `deploy/` contains fits the program that it is for."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remuda.base.config import env_names, options_of
from remuda.cli.rooms import ROOMS, SECTIONS
from remuda.fleet.metrics import MetricKind
from remuda.fleet.room import role_kinds
from remuda.ops.exporter import all_metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus/alerts.yml"
DASHBOARD = DEPLOY / "grafana/remuda.json"
UNITS = sorted((DEPLOY / "systemd").iterdir())


def known_series() -> set[str]:
    parts = {MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count")}
    return {each.name + part for each in all_metrics(ROOMS) for part in parts.get(each.kind, ("",))}


def expressions() -> list[str]:
    """The queries of the dashboard."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_dashboard_and_alerts_name_metrics_that_there_are() -> None:
    used = set(re.findall(r"\b(?:remuda|webgrid)_\w+", " ".join(expressions()) + ALERTS.read_text()))

    assert used - known_series() == set()


def test_the_alert_rules_are_valid() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool here: apt-get install prometheus")

    checked = subprocess.run(
        [promtool, "check", "rules", ALERTS], check=False, capture_output=True, text=True
    )

    assert checked.returncode == 0, checked.stderr


RULE_TESTS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: remuda_redis_memory_bytes, values: '85x20'}}
      - {{series: remuda_redis_memory_limit_bytes, values: '{limit}x20'}}
    alert_rule_test:
      - eval_time: 10m
        alertname: RemudaRedisFull
        exp_alerts: {alerts}
"""
FULL = "[{exp_labels: {severity: warning}, exp_annotations: {summary: Redis uses 85% of its memory}}]"


@pytest.mark.parametrize(("limit", "alerts"), [(100, FULL), (200, "[]"), (0, "[]")])
def test_a_redis_that_fills_up_raises_an_alert_with_its_share(
    tmp_path: Path, limit: int, alerts: str
) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    (tmp_path / "test.yml").write_text(RULE_TESTS.format(rules=ALERTS, limit=limit, alerts=alerts))
    words = [promtool, "test", "rules", str(tmp_path / "test.yml")]

    checked = subprocess.run(words, check=False, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_use_options_and_roles_that_there_are(unit: Path) -> None:
    text = unit.read_text()
    variables = {name for each in options_of(SECTIONS) for name in env_names(each)}

    assert set(re.findall(r"\b(REMUDA_[A-Z_]+)=", text)) <= variables
    for role in re.findall(r"remuda run (\w+)", text):
        assert role in role_kinds(ROOMS)


@pytest.mark.parametrize(
    "unit", [each for each in UNITS if each.suffix == ".service"], ids=lambda unit: unit.name
)
def test_a_unit_does_not_take_from_browsers_what_they_need(unit: Path) -> None:
    settings = [line for line in unit.read_text().splitlines() if not line.startswith("#")]

    assert "Type=notify" in settings
    for forbidden in ("RestrictNamespaces", "PrivateUsers", "MemoryDenyWriteExecute"):
        assert not any(line.startswith(forbidden) for line in settings)


def test_the_units_are_valid(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/remuda/bin/remuda", "/bin/true"))
    names = [unit.name.replace("@.", "@manager.") for unit in UNITS]
    words = [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in names)]

    checked = subprocess.run(words, check=False, capture_output=True, text=True)

    assert (checked.returncode, checked.stderr) == (0, "")
