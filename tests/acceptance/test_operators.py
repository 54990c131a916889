"""What operators and their tools ask the front door."""

import json
from urllib.request import urlopen

import pytest

from herds import Herd

KEDA = (
    "{ grid { sessionCount, maxSession, totalSlots }, nodesInfo { nodes { id, status, sessionCount, "
    "maxSession, slotCount, stereotypes, sessions { id, capabilities, slot { id, stereotype } } } }, "
    "sessionsInfo { sessionQueueRequests } }"
)


def test_prometheus_gets_its_metrics(herd: Herd) -> None:
    with urlopen(f"{herd.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()

    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "\nwebgrid_slots_available " in text
    assert '\nremuda_roles_up{role="gateway"} 1\n' in text


def test_keda_gets_the_answer_it_scales_by(herd: Herd) -> None:
    status, content, _ = herd.request("POST", "/graphql", json.dumps({"query": KEDA}))

    assert status == 200
    assert content["data"]["grid"]["maxSession"] == 2
    (node,) = content["data"]["nodesInfo"]["nodes"]
    assert node["status"] == "UP"
    assert json.loads(node["stereotypes"])[0]["stereotype"]["browserName"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/status", "/wd/hub/status", "/api/overview"])
def test_probes_are_answered(herd: Herd, path: str) -> None:
    assert herd.request("GET", path)[0] == 200
