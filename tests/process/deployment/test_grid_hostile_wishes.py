"""Clients that want more than a browser: whatever they say, no program of theirs runs, and nothing is written
outside of their session's directory."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments import Client, Deployment, assert_ended, node_of, working_deployment
from grids import all_sessions
from hostile_wishes import HostileWish, fill, hostile_profile, hostile_wishes
from installed import BROWSERS
from processes import family
from remuda.base.ids import SessionId
from remuda.store import Store

pytestmark = pytest.mark.xdist_group("grid hostile wishes")

REFUSED = list(hostile_wishes())
CHROMIUM = [
    pytest.param(name, marks=pytest.mark.skipif(name not in BROWSERS, reason=f"no {name} here"))
    for name in ("chrome", "chrome-headless-shell")
]
needs_firefox = pytest.mark.skipif("firefox" not in BROWSERS, reason="no Firefox here")


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with working_deployment(["gateway", "manager", "orchestrator"]) as deployment:
        yield deployment


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that any user may write to, and no session does; with a program that would."""
    with tempfile.TemporaryDirectory(prefix="remuda-outside-") as name:
        outside = Path(name)
        outside.chmod(0o777)
        script = outside / "script"
        script.write_text(f"#!/bin/sh\nid > {outside}/marker\n")
        script.chmod(0o755)
        before = sorted(os.walk(outside))
        yield outside
        assert sorted(os.walk(outside)) == before, "a session has written outside of its directory"


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(REFUSED) > 100
    assert {wish.browser for wish in REFUSED} == {"chrome", "chrome-headless-shell", "firefox", "MiniBrowser"}


@pytest.mark.parametrize("wish", REFUSED, ids=str)
async def test_a_hostile_wish_is_refused_by_name_before_anything_starts(
    store: Store, client: Client, outside: Path, wish: HostileWish
) -> None:
    before = len(await all_sessions(store))

    reply = await client.ask(browserName=wish.browser, **fill(dict(wish.capabilities), outside))

    assert reply.error == "400 invalid argument"
    assert wish.refused in reply.value["message"]
    assert len(await all_sessions(store)) == before


async def test_a_hostile_wish_is_refused_in_any_capability_set(client: Client, outside: Path) -> None:
    hostile = fill({"goog:chromeOptions": {"args": ["--zygote-cmd-prefix={script}"]}}, outside)

    body = {"capabilities": {"firstMatch": [{"browserName": "chrome"}, {"browserName": "chrome", **hostile}]}}
    reply = await client.call("POST", "/session", body)

    assert reply.error == "400 invalid argument"


# What is accepted has no effect beyond the session


async def opened(client: Client, browser: str, **capabilities: Any) -> tuple[SessionId, Any]:
    reply = await client.ask(browserName=browser, **capabilities)
    assert reply.status == 200, reply.value
    return SessionId(reply.value["sessionId"]), reply.value["capabilities"]


async def ended(store: Store, client: Client, deployment: Deployment, session: SessionId) -> None:
    was = family(await node_of(store, session, deployment))
    await client.close(session)
    await assert_ended(store, client, session, was)


async def script(client: Client, session: SessionId, text: str) -> Any:
    body = {"script": text, "args": []}
    return (await client.call("POST", f"/session/{session}/execute/sync", body)).value


DOWNLOAD = """
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["id > marker"], {type: "application/octet-stream"}));
    link.download = "marker";
    document.body.append(link);
    link.click();
"""


@pytest.mark.parametrize("name", CHROMIUM)
async def test_what_a_chromium_is_told_in_vain_is_dropped_and_told(
    store: Store, client: Client, deployment: Deployment, outside: Path, name: str
) -> None:
    options = {
        "binary": "{script}",
        "args": [
            *("--no-sandbox", "--remote-debugging-port=1", "--disable-gpu-sandbox", "--no-zygote"),
            *("--enable-features=MojoJS,Vulkan", "--enable-blink-features=MojoJS"),
        ],
        "prefs": {"download.default_directory": "{outside}", "savefile": {"default_directory": "{outside}"}},
    }
    session, actual = await opened(client, name, **fill({"goog:chromeOptions": options}, outside))

    assert actual["browserName"] == name
    assert actual["remuda:ignored"] == [
        "binary in goog:chromeOptions",
        *("--no-sandbox", "--remote-debugging-port", "--disable-gpu-sandbox", "--no-zygote"),
        *("--enable-features=MojoJS", "--enable-blink-features=MojoJS"),
        *("download.default_directory", "savefile.default_directory"),
    ]
    assert await script(client, session, "return typeof Mojo") == "undefined"
    assert await script(client, session, DOWNLOAD) is None
    extension = {"type": "path", "path": str(outside)}
    installed = await client.call("POST", f"/session/{session}/webextension", extension)
    assert installed.error == "400 invalid argument"
    await ended(store, client, deployment, session)


CHROME_CODE = """
    const {classes, interfaces} = Components;
    const file = classes["@mozilla.org/file/local;1"].createInstance(interfaces.nsIFile);
    file.initWithPath("%s");
    const process = classes["@mozilla.org/process/util;1"].createInstance(interfaces.nsIProcess);
    process.init(file);
    process.run(true, [], 0);
"""


@needs_firefox
async def test_a_hostile_profile_and_what_comes_after_it_run_nothing(
    store: Store, client: Client, deployment: Deployment, outside: Path
) -> None:
    options = {"profile": hostile_profile(outside), "binary": str(outside / "script")}
    # A URL that becomes a download is never a page, so the driver waits as long as it is told to.
    wanted = {"moz:firefoxOptions": options, "timeouts": {"pageLoad": 1000}}
    session, actual = await opened(client, "firefox", **wanted)

    ignored = actual["remuda:ignored"]
    assert {"handlers.json in profile", "pkcs11.txt in profile", "binary in moz:firefoxOptions"} <= set(
        ignored
    )
    # Each of these is an attempt by itself; none of them may leave anything.
    evil = f"id > {outside}/marker"
    for url in (f"data:application/sh,{evil}", f"data:application/octet-stream,{evil}", "evil:x"):
        await client.call("POST", f"/session/{session}/url", {"url": url})
    context = await client.call("POST", f"/session/{session}/moz/context", {"context": "chrome"})
    assert context.error == "400 invalid argument"
    assert "remote-allow-system-access" in context.value["message"]
    await script(client, session, CHROME_CODE % (outside / "script"))
    addon = {"path": str(outside / "script"), "temporary": True}
    # geckodriver takes both.
    for command in ("moz/addon/install", "moz/addon/install/"):
        installed = await client.call("POST", f"/session/{session}/{command}", addon)
        assert installed.error == "400 invalid argument"
        assert "is a path of this machine" in installed.value["message"]
    content = await client.call("POST", f"/session/{session}/moz/context", {"context": "content"})
    assert content.status == 200
    await ended(store, client, deployment, session)
