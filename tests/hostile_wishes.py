"""Capability sets with which a client tries to run a program of the herd's machine, or to use its files.

`{marker}` is a file that no session may make, `{outside}` is its directory, and `{script}` a program that
would make it. What is read is `/etc/passwd`.
"""

import base64
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = ("chrome", "chrome-headless-shell")


@dataclass(frozen=True)
class HostileWish:
    """A capability set, and the name of what in it is refused."""

    browser: str
    capabilities: Mapping[str, Any]
    refused: str

    def __str__(self) -> str:
        return f"{self.browser}-{self.refused}"


def fill(value: Any, outside: Path) -> Any:
    """A template with the paths of this run."""
    if isinstance(value, dict):
        return {fill(name, outside): fill(each, outside) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each, outside) for each in value]
    if not isinstance(value, str):
        return value
    paths = {"marker": outside / "marker", "outside": outside, "script": outside / "script"}
    for name, path in paths.items():
        value = value.replace(f"{{{name}}}", str(path))
    return value


SWITCHES = {
    # Programs
    "zygote-cmd-prefix": """=/usr/bin/perl -e system("id>{marker}");exec(@ARGV) --""",
    "renderer-cmd-prefix": "={script}",
    "utility-cmd-prefix": "={script}",
    "gpu-launcher": "={script}",
    "ppapi-plugin-launcher": "={script}",
    "browser-subprocess-path": "={script}",
    "chrome-sandbox": "={script}",
    "register-pepper-plugins": "={script};application/x-evil",
    "test-gl-lib": "={script}",
    "load-extension": "={outside}",
    "disable-extensions-except": "={outside}",
    "install-isolated-web-app-from-file": "={outside}/x.swbn",
    # What it writes
    "user-data-dir": "={outside}/profile",
    "disk-cache-dir": "={outside}/cache",
    "log-file": "={marker}",
    "log-net-log": "={marker}",
    "ssl-key-log-file": "={marker}",
    "trace-startup-file": "={marker}",
    "enable-tracing-output": "={marker}",
    "crash-dumps-dir": "={outside}",
    "print-to-pdf": "={marker}",
    "screenshot": "={marker}",
    "ozone-dump-file": "={outside}",
    "export-uma-logs-to-file": "={marker}",
    "metrics-dir": "={outside}",
    "js-flags": "=--logfile={marker} --log-all",
    "profile-directory": "=../../../../../../{outside}",
    # What it reads
    "use-file-for-fake-video-capture": "=/etc/passwd",
    "use-file-for-fake-audio-capture": "=/etc/passwd",
    "app": "=file:///etc/passwd",
    "proxy-pac-url": "=file:///etc/passwd",
    "file-url-path-alias": "=/x=/etc",
    # Ways around the browser's walls, and to its DevTools
    "enable-gpu-benchmarking": "",
    "remote-debugging-address": "=0.0.0.0",
    "remote-debugging-targets": "=127.0.0.1:1",
    "extensions-on-chrome-urls": "",
    "password-store": "=gnome-libsecret",
}
DISGUISES = (
    "zygote-cmd-prefix={script}",
    "-zygote-cmd-prefix={script}",
    "  --zygote-cmd-prefix ={script}",
    "--ZYGOTE-CMD-PREFIX={script}",
    "--mute-audio --zygote-cmd-prefix={script}",
    "--mute-audio\n--zygote-cmd-prefix={script}",
    "file:///etc/passwd",
)
CHROMIUM_OPTIONS: Mapping[str, Any] = {
    "debuggerAddress": "127.0.0.1:1",
    "minidumpPath": "{outside}",
    "androidPackage": "com.android.chrome",
    "androidExecName": "{script}",
    "anOptionOfTomorrow": "{script}",
}
FIREFOX_ARGS = (
    ["-remote-allow-system-access"],
    ["--Remote-Allow-System-Access"],
    ["-profile", "{outside}"],
    ["--profile={outside}"],
    ["-P", "default"],
    ["-CreateProfile", "x {outside}"],
    ["-app", "{outside}/application.ini"],
    ["-greomni", "{outside}/omni.ja"],
    ["-screenshot", "{marker}"],
    ["-recording-output", "{marker}"],
    ["-start-debugger-server", "6000"],
    ["-remote-debugging-port", "9222"],
    ["-url", "file:///etc/passwd"],
    ["-width", "-profile"],
    ["file:///etc/passwd"],
)
FIREFOX_PREFS: Mapping[str, Any] = {
    "browser.helperApps.neverAsk.openFile": "application/sh",
    "general.config.filename": "{outside}/x.cfg",
    "network.protocol-handler.app.evil": "{script}",
    "network.proxy.socks": "file://{outside}/x.sock",
    "browser.cache.disk.parent_directory": "{outside}",
    "print.print_to_filename": "{marker}",
    "logging.config.LOG_FILE": "{marker}",
    "security.sandbox.content.write_path_whitelist": "{outside}",
    "extensions.experiments.enabled": True,
    "devtools.debugger.remote-enabled": True,
}
FIREFOX_VARIABLES = {
    "LD_PRELOAD": "{outside}/x.so",
    "MOZ_LOG_FILE": "{marker}",
    "PATH": "{outside}",
    "TZ": "{outside}/x",
}
WEBKIT_ARGS = (
    "--cookies-file={marker}",
    "--content-filter={outside}/x.json",
    "--gtk-module={outside}/x.so",
    "--proxy=file:///x",
    "file:///etc/passwd",
)


def hostile_wishes() -> Iterator[HostileWish]:
    """All of them; each is refused by name, before anything is started."""
    for browser in CHROMIUM:
        for name, value in SWITCHES.items():
            yield _chromium(browser, name, args=[f"--{name}{value}"])
        for option, value in CHROMIUM_OPTIONS.items():
            yield _chromium(browser, option, **{option: value})
    for arg in DISGUISES:
        yield _chromium("chrome", "/passwd" if "passwd" in arg else arg.strip()[:8], args=[arg])
    yield _chromium("chrome", "user-data-dir", excludeSwitches=["user-data-dir"])
    yield _chromium("chrome", "download.extensions_to_open", prefs={"download": {"extensions_to_open": "sh"}})
    yield _chromium("chrome", "homepage", prefs={"homepage": "file:///etc/passwd"})
    yield _chromium(
        "chrome", "protocol_handler", prefs={"protocol_handler": {"excluded_schemes": {"x": False}}}
    )
    yield _chromium("chrome", "a.b", localState={"a": {"b": "{script}"}})
    experiments = {"browser.enabled_labs_experiments": ["extensions-on-chrome-urls@1"]}
    yield _chromium("chrome", "browser.enabled_labs_experiments", localState=experiments)
    for args in FIREFOX_ARGS:
        yield _firefox(args[0].lstrip("-").partition("=")[0], args=["-headless", *args])
    for name, value in FIREFOX_PREFS.items():
        yield _firefox(name, prefs={name: value})
    for name, value in FIREFOX_VARIABLES.items():
        yield _firefox(name, env={name: value})
    yield _firefox("androidPackage", androidPackage="org.mozilla.firefox")
    for arg in WEBKIT_ARGS:
        options = {"webkitgtk:browserOptions": {"args": [arg]}}
        yield HostileWish("MiniBrowser", options, arg.lstrip("-").partition("=")[0])
    certificates = {"certificates": [{"host": "x", "certificateFile": "/etc/passwd"}]}
    yield HostileWish("MiniBrowser", {"webkitgtk:browserOptions": certificates}, "certificates")
    for name, url in (("proxyAutoconfigUrl", "file:///etc/passwd"), ("socksProxy", "file:///x.sock")):
        yield HostileWish("firefox", {"proxy": {"proxyType": "manual", name: url}}, name)
    yield HostileWish("chrome", {"goog:aCapabilityOfTomorrow": "{script}"}, "goog:aCapabilityOfTomorrow")


def _chromium(browser: str, refused: str, **options: Any) -> HostileWish:
    return HostileWish(browser, {"goog:chromeOptions": options}, refused)


def _firefox(refused: str, **options: Any) -> HostileWish:
    return HostileWish("firefox", {"moz:firefoxOptions": options}, refused)


def hostile_profile(outside: Path) -> str:
    """A profile that has a script run for a media type, and more of the kind."""
    handler = {"name": "sh", "path": "/bin/sh"}
    handlers = {
        "defaultHandlersVersion": {},
        "mimeTypes": {
            "application/sh": {"action": 2, "ask": False, "extensions": ["sh"], "handlers": [handler]}
        },
        "schemes": {"evil": {"action": 2, "ask": False, "handlers": [handler]}},
    }
    prefs = {
        "browser.helperApps.neverAsk.openFile": "application/sh",
        "browser.download.dir": str(outside),
        "browser.download.folderList": 2,
        "browser.helperApps.neverAsk.saveToDisk": "application/octet-stream",
        "browser.download.always_ask_before_handling_new_types": False,
        "general.config.filename": "x.cfg",
    }
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in prefs.items()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("handlers.json", json.dumps(handlers))
        archive.writestr("user.js", "\n".join(lines))
        archive.writestr("pkcs11.txt", f"library={outside}/x.so\nname=x\n")
        archive.writestr("../../../../../../../../" + str(outside / "marker").lstrip("/"), "x")
        archive.writestr(str(outside / "marker"), "x")
    return base64.b64encode(packed.getvalue()).decode()
