"""A session's trace: one, across gateway, manager, orchestrator and node, with every step at its place."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from collectors import Collector, Seen, open_collector
from deployments import DEADLINE, Deployment, has_ended, is_open, open_deployment
from installed import LIGHTEST, needs_browser
from remuda.base.ids import SessionId
from remuda.fleet.role import running_roles
from remuda.fleet.tracing import decode_context, read_context
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually

pytestmark = needs_browser

LIGHT = {"browserName": LIGHTEST}
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STEPS = {
    "create session": ("remuda-manager", "client"),
    "wait in queue": ("remuda-manager", "create session"),
    "schedule node": ("remuda-orchestrator", "create session"),
    "start node": ("remuda-node", "create session"),
    "start driver": ("remuda-node", "start node"),
    "start browser": ("remuda-node", "start node"),
    "session": ("remuda-node", "create session"),
}
"""Each span of a session that goes well: who makes it, and within which."""


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with open_collector() as collector:
        yield collector


@pytest.fixture
async def deployment() -> AsyncIterator[Deployment]:
    with open_deployment() as deployment:
        yield deployment
        deployment.stop()


async def opened(deployment: Deployment, store: Store, **environ: str) -> str:
    """The address of a herd of three processes."""
    for roles in (["gateway"], ["manager"], ["orchestrator"]):
        deployment.run(*roles, environ=environ)
    await eventually(lambda: is_open(store), DEADLINE)
    (address,) = [role["address"] for role in await running_roles(store) if role["name"] == "gateway"]
    return f"http://{address}"


async def ask(url: str, capabilities: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    async with aiohttp.ClientSession(url, timeout=timeout) as http:
        body = {"capabilities": {"alwaysMatch": capabilities}}
        async with http.post("/session", json=body, headers=headers) as response:
            value = (await response.json())["value"]
        if response.status == 200:
            await http.delete(f"/session/{value['sessionId']}")
        return response.status, value


def names(spans: list[Seen]) -> dict[str, str]:
    """The name of each span's parent, by its own; that of the client's span is `client`."""
    by_id = {span.id: span.name for span in spans} | {CLIENT.split("-")[2]: "client"}
    return {span.name: by_id.get(span.parent, span.parent) for span in spans}


async def test_a_sessions_steps_are_one_trace_across_its_processes(
    deployment: Deployment, collector: Collector
) -> None:
    async with Store(deployment.redis_url) as store:
        url = await opened(deployment, store, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)

        status, value = await ask(url, LIGHT, {"traceparent": CLIENT, "tracestate": "rojo=1"})
        assert status == 200
        session = SessionId(value["sessionId"])

        trace = CLIENT.split("-")[1]
        await eventually(lambda: len(collector.trace(trace)) == len(STEPS), DEADLINE)
        spans = collector.trace(trace)
        assert {span.name: (span.service, names(spans)[span.name]) for span in spans} == STEPS
        assert {span.state for span in spans} == {"rojo=1"}
        assert all(span.error is None for span in spans)
        about = [span for span in spans if "remuda.session.id" in span.attributes]
        assert {span.attributes["remuda.session.id"] for span in about} == {session}
        # What Redis says of it is what the others went by.
        telemetry = await store.hgetall(grid.SESSION_TELEMETRY_CREATION(session))
        (root,) = [span for span in spans if span.name == "create session"]
        context = decode_context(telemetry["context"])
        assert telemetry["traceID"] == trace
        assert context is not None
        assert (context.trace_id, context.span_id, context.state) == (trace, root.id, "rojo=1")
        assert await take_census(store) == []


async def test_a_session_that_is_not_created_says_in_its_trace_why(
    deployment: Deployment, collector: Collector
) -> None:
    async with Store(deployment.redis_url) as store:
        url = await opened(deployment, store, REMUDA_OTLP_ENDPOINT=collector.url)

        status, _ = await ask(url, {"goog:chromeOptions": {"perfLoggingPrefs": {"nonsense": 1}}}, {})

        assert status == 400
        spans = collector.spans.values()
        await eventually(lambda: {"create session", "start node"} <= {each.name for each in spans}, DEADLINE)
        errors = {span.name: span.error for span in spans if span.error is not None}
        assert set(errors) == {"create session", "start node", "start browser"}
        assert all("nonsense" in (error or "") for error in errors.values())
        (root,) = [span for span in spans if span.name == "create session"]
        assert root.parent == "", "it began no trace of its own"


async def test_without_a_collector_a_clients_trace_is_noted_and_handed_on(deployment: Deployment) -> None:
    async with Store(deployment.redis_url) as store:
        url = await opened(deployment, store)

        _, traced = await ask(url, LIGHT, {"traceparent": CLIENT})
        _, untraced = await ask(url, LIGHT, {})

        contexts = []
        for value in (traced, untraced):
            session = SessionId(value["sessionId"])
            key = grid.SESSION_TELEMETRY_CREATION(session)
            contexts.append(decode_context(await store.hget(key, "context")))
        assert contexts[0] == read_context(CLIENT)
        assert contexts[1] is not None
        assert not contexts[1].is_sampled


async def test_a_collector_that_is_gone_is_not_noticed_by_sessions(deployment: Deployment) -> None:
    async with Store(deployment.redis_url) as store:
        # Nobody listens at port 1, and nobody answers from there either.
        url = await opened(deployment, store, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")

        status, value = await ask(url, LIGHT, {})

        assert status == 200
        await eventually(lambda: has_ended(store, SessionId(value["sessionId"])), DEADLINE)
