"""What clients may tell a browser: all that common tools use, and nothing that reaches the machine."""

import time
from typing import Any

import pytest

from common_wishes import CHROMIUM_ARGS, CHROMIUM_PREFS, FIREFOX_ARGS, FIREFOX_PREFS
from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance, Sieve, client_defaults
from remuda.fleet.permits.rules import MAX_ARGS, MAX_LENGTH, MAX_PREFERENCES

WHERE = "the options"

# What gives a page more than pages have, or keeps it from less; or has a path, or is a disguise.
HOSTILE_FEATURES = [
    "MojoJS",
    "MojoJSTest",
    "mojojs",
    "BlockInsecurePrivateNetworkRequests",
    "LocalNetworkAccessChecks",
    "NetworkService:path/root",
    "Translate<Study.Group:path/root",
    "*Translate",
    "Ｔranslate",  # noqa: RUF001
    "--zygote-cmd-prefix=/bin/sh",
    "FeatureOfTomorrow",
]


def refusal(kind: str, given: Any, allow: str = "") -> str:
    """What a client is told of something that may not pass."""
    sieve = Sieve(Allowance.of(allow))
    with pytest.raises(InvalidArgument) as caught:
        getattr(sieve, kind)(given, where=WHERE)
    return caught.value.message


# What passes


@pytest.mark.parametrize(
    ("source", "arg"), [(source, arg) for source, args in CHROMIUM_ARGS.items() for arg in args]
)
def test_a_switch_of_a_common_tool_passes_or_is_dropped(source: str, arg: str) -> None:
    sieve = Sieve()

    kept = sieve.chromium_args([arg], where=WHERE)

    bare = arg.strip().removeprefix("--")
    assert kept == [f"--{bare}"] or sieve.dropped == [f"--{bare.partition('=')[0]}"], source


@pytest.mark.parametrize("name", CHROMIUM_PREFS)
def test_a_preference_of_a_common_tutorial_passes_or_is_dropped(name: str) -> None:
    sieve = Sieve()

    kept = sieve.chromium_prefs({name: CHROMIUM_PREFS[name]}, where=WHERE)

    assert kept == {name: CHROMIUM_PREFS[name]} or sieve.dropped == [name]


@pytest.mark.parametrize("source", FIREFOX_ARGS)
def test_an_argument_for_firefox_of_a_common_tool_passes_or_is_dropped(source: str) -> None:
    sieve = Sieve()

    kept = sieve.firefox_args(list(FIREFOX_ARGS[source]), where=WHERE)

    assert bool(sieve.dropped) == ("Chromium" in source)
    assert bool(kept) != bool(sieve.dropped)


@pytest.mark.parametrize("name", FIREFOX_PREFS)
def test_a_preference_for_firefox_of_a_common_tutorial_passes_or_is_dropped(name: str) -> None:
    sieve = Sieve()

    kept = sieve.firefox_prefs({name: FIREFOX_PREFS[name]}, where=WHERE)

    assert kept == {name: FIREFOX_PREFS[name]} or sieve.dropped == [name]


def test_the_tables_are_large_enough_to_mean_something() -> None:
    assert sum(map(len, CHROMIUM_ARGS.values())) + len(CHROMIUM_PREFS) + len(FIREFOX_PREFS) > 200


def test_what_is_the_herds_own_is_dropped_and_told() -> None:
    sieve = Sieve()

    assert sieve.chromium_args(
        ["--no-sandbox", "remote-debugging-port=9222", "--mute-audio"], where=WHERE
    ) == ["--mute-audio"]
    assert sieve.chromium_prefs(
        {"download": {"default_directory": "/x", "prompt_for_download": False}}, where=WHERE
    ) == {"download": {"prompt_for_download": False}}
    assert sieve.dropped == ["--no-sandbox", "--remote-debugging-port", "download.default_directory"]


def test_a_switch_is_written_anew_so_that_what_was_checked_is_what_is_passed() -> None:
    given = ["headless=new", "-incognito", "  --mute-audio  ", "--lang =de"]

    assert Sieve().chromium_args(given, where=WHERE) == [
        "--headless=new",
        "--incognito",
        "--mute-audio",
        "--lang=de",
    ]


def test_a_value_of_firefox_is_the_next_argument() -> None:
    assert Sieve().firefox_args(["-width", "800", "--Height=600"], where=WHERE) == [
        "-width",
        "800",
        "-height",
        "600",
    ]


@pytest.mark.parametrize("name", ["enable-features", "disable-features", "enable-blink-features"])
@pytest.mark.parametrize("hostile", HOSTILE_FEATURES)
def test_an_unknown_feature_is_left_out_and_told(name: str, hostile: str) -> None:
    sieve = Sieve()

    kept = sieve.chromium_args([f"--{name}= Translate,{hostile},,VaapiVideoDecoder"], where=WHERE)

    assert kept == [f"--{name}=Translate,VaapiVideoDecoder"]
    assert sieve.dropped == [f"--{name}={hostile.strip()}"]


def test_a_switch_of_which_every_feature_is_unknown_is_left_out_as_a_whole() -> None:
    sieve = Sieve()

    kept = sieve.chromium_args(["--enable-features=MojoJS, OfTomorrow", "--disable-features="], where=WHERE)

    assert kept == ["--disable-features="]
    assert sieve.dropped == ["--enable-features=MojoJS,OfTomorrow"]


def test_what_a_client_turns_off_by_default_may_not_be_turned_on() -> None:
    sieve = Sieve()

    assert sieve.chromium_args(["--enable-features=IsolateOrigins,RenderDocument"], where=WHERE) == []


@pytest.mark.parametrize("allow", ["enable-features", "*", "OfTomorrow"])
def test_an_operator_can_allow_a_feature_by_its_name_or_all(allow: str) -> None:
    given = ["--enable-features=OfTomorrow"]

    assert Sieve(Allowance.of(allow)).chromium_args(given, where=WHERE) == given


def test_the_defaults_of_clients_have_nothing_that_is_hostile() -> None:
    features = {each.strip() for each in HOSTILE_FEATURES}
    named = client_defaults.ENABLED_FEATURES | client_defaults.DISABLED_FEATURES
    switches = {each.partition("=")[0] for each in HOSTILE_SWITCHES}

    assert not features & named
    assert not switches & {each.partition("=")[0] for each in client_defaults.SWITCHES} - OF_ONE_VALUE
    assert not any("/" in each for each in (*named, *client_defaults.SWITCHES))


# What does not

OF_ONE_VALUE = {"--password-store"}
HOSTILE_SWITCHES = [
    # Programs
    "--zygote-cmd-prefix=/usr/bin/perl -e system('id')",
    "--renderer-cmd-prefix=/bin/sh -c",
    "--utility-cmd-prefix=/bin/sh",
    "--ppapi-plugin-launcher=/bin/sh",
    "--gpu-launcher=/bin/sh",
    "--browser-subprocess-path=/bin/sh",
    "--chrome-sandbox=/bin/sh",
    "--register-pepper-plugins=/tmp/x.so;application/x",
    "--load-extension=/tmp",
    "--test-gl-lib=/tmp/x.so",
    "--debug",
    "-g",
    "--temp-profile",
    # Paths
    "--user-data-dir=/root",
    "--disk-cache-dir=/root",
    "--log-file=/root/x",
    "--log-net-log=/root/x",
    "--ssl-key-log-file=/root/x",
    "--crash-dumps-dir=/root",
    "--trace-startup-file=/root/x",
    "--enable-tracing-output=/root/x",
    "--print-to-pdf=/root/x",
    "--screenshot=/root/x",
    "--use-file-for-fake-video-capture=/etc/shadow",
    "--use-file-for-fake-audio-capture=/etc/shadow",
    "--install-isolated-web-app-from-file=/root/x",
    "--profile-directory=../../root",
    "--lang=../../etc/passwd",
    "--js-flags=--logfile=/root/x --log-all",
    "--js-flags=--prof",
    "--js-flags=--expose-gc --redirect-code-traces-to=/root/x",
    "--js-flags=--expose-gc,--logfile=/root/x",
    "--js-flags=--max-old-space-size=4096 --trace-turbo-path=/root",
    "--js-flags=--allow-natives-syntax",
    "--app=file:///etc/shadow",
    "--app=javascript:alert(1)",
    "--app=chrome://inspect",
    "--proxy-pac-url=file:///etc/shadow",
    "--homepage=file:///etc/shadow",
    # Ports and ways around the browser's walls
    "--remote-debugging-address=0.0.0.0",
    "--remote-debugging-targets=127.0.0.1:1",
    "--enable-gpu-benchmarking",
    "--blink-settings=allowUniversalAccessFromFileURLs=true",
    "--password-store=gnome-libsecret",
    "--auth-server-allowlist=*",
    "--display=:0",
    "--type=renderer",
    "--flag-switches-begin",
    # Disguises
    "--ZYGOTE-CMD-PREFIX=/bin/sh",
    "zygote-cmd-prefix=/bin/sh",
    "-zygote-cmd-prefix=/bin/sh",
    "---zygote-cmd-prefix=/bin/sh",
    "  --zygote-cmd-prefix =/bin/sh",
    "--mute-audio --zygote-cmd-prefix=/bin/sh",
    "--mute-audio\n--zygote-cmd-prefix=/bin/sh",
    "--mute-audio\x00",
    "--user-agent=x\r\n--zygote-cmd-prefix=/bin/sh",
    "--ｚygote-cmd-prefix=/bin/sh",  # noqa: RUF001
    "\u2010\u2010zygote-cmd-prefix=/bin/sh",
    "—zygote-cmd-prefix=/bin/sh",
    "file:///etc/shadow",
    "http://example.com",
    "/etc/shadow",
    "@/etc/shadow",
    "--",
    "-",
    "",
    "--=x",
    "--user-agent=" + "x" * MAX_LENGTH,
    "--a-switch-of-tomorrow",
]


@pytest.mark.parametrize("arg", HOSTILE_SWITCHES)
def test_a_switch_that_is_not_known_to_be_harmless_is_refused(arg: str) -> None:
    assert "this machine" in refusal("chromium_args", ["--mute-audio", arg]) or len(arg) > MAX_LENGTH


@pytest.mark.parametrize("args", ["--headless", {"headless": True}, 5, ["--mute-audio", 5], [None], [["x"]]])
def test_arguments_that_are_not_a_list_of_strings_are_refused(args: Any) -> None:
    for kind in ("chromium_args", "firefox_args"):
        assert refusal(kind, args) == "'args' in the options must be a list of strings"


def test_no_more_arguments_are_taken_than_a_process_can_have() -> None:
    assert f"it may have {MAX_ARGS}" in refusal("chromium_args", ["--mute-audio"] * (MAX_ARGS + 1))


@pytest.mark.parametrize(
    "prefs",
    [
        {"download.extensions_to_open": "sh"},
        {"download": {"extensions_to_open": "sh"}},
        {"protocol_handler": {"excluded_schemes": {"x": False}}},
        {"selectfile.last_directory": "/root"},
        {"devtools.file_system_paths": {"/root": ""}},
        {"extensions.settings": {"x": {"path": "/root"}}},
        {"homepage": "file:///etc/shadow"},
        {"session.startup_urls": "file:///etc/shadow"},
        {"profile.default_content_setting_values.notifications": "/root"},
        {"credentials_enable_service": [1]},
        {"intl.accept_languages": {"a": "/root"}},
        {"profile.default_content_setting_values.local_network_access": 1},
        {"profile": {"managed_default_content_settings": {"loopback_network": 1}}},
        {"profile.content_settings.exceptions.file_handling": {"*,*": {"setting": 1}}},
        {"profile.default_content_setting_values.protocol_handler": 1},
        {"webkit.webprefs.allow_universal_access_from_file_urls": True},
        {"devtools.preferences.of_tomorrow": "x"},
        {"omnibox-of-tomorrow": 1},
        {"": {"": 1}},
        {"a": {"b": {"c": 1}}},
    ],
)
def test_a_preference_of_chromium_that_is_not_listed_is_refused_however_it_is_nested(prefs: Any) -> None:
    assert "this machine" in refusal("chromium_prefs", prefs)


def test_an_experiment_that_opens_this_machines_addresses_to_pages_is_refused() -> None:
    experiments = {"browser.enabled_labs_experiments": ["block-insecure-private-network-requests@2"]}

    assert "enabled_labs_experiments" in refusal("chromium_local_state", experiments)


def test_no_more_preferences_are_taken_than_can_be_looked_at_in_passing() -> None:
    names = {f"translate_allowlists.{number}": "x" for number in range(MAX_PREFERENCES + 1)}

    assert f"it may have {MAX_PREFERENCES}" in refusal("chromium_prefs", names)
    assert f"it may have {MAX_PREFERENCES}" in refusal("chromium_prefs", {"a": names})
    spread = {f"translate_allowlists.{number}": {"a": 1, "b": 1} for number in range(MAX_PREFERENCES // 2)}
    assert f"it may have {MAX_PREFERENCES}" in refusal("chromium_prefs", spread)


def test_preferences_that_are_nested_without_end_are_refused() -> None:
    prefs: dict[str, Any] = {}
    for _ in range(500):
        prefs = {"a": prefs}

    assert "nested too deeply" in refusal("chromium_prefs", prefs)


@pytest.mark.parametrize(
    "prefs",
    [
        {"general.config.filename": "x.cfg"},
        {"browser.helperApps.neverAsk.openFile": "application/sh"},
        {"browser.helperApps.neverAsk.saveToDisk": "a\nuser_pref('x', 1)"},
        {"network.protocol-handler.app.x": "/bin/sh"},
        {"network.protocol-handler.external.x": True},
        {"network.proxy.socks": "file:///run/docker.sock"},
        {"network.proxy.socks": "File:run.sock"},
        {"network.proxy.autoconfig_url": "file:///etc/shadow"},
        {"network.automatic-ntlm-auth.trusted-uris": "x"},
        {"browser.cache.disk.parent_directory": "/root"},
        {"browser.startup.homepage": "file:///etc/shadow"},
        {"print.print_to_filename": "/root/x"},
        {"print.always_print_silent": True},
        {"devtools.debugger.remote-enabled": True},
        {"devtools.debugger.remote-port": 1},
        {"devtools.chrome.enabled": True},
        {"security.sandbox.content.level": 0},
        {"security.sandbox.content.write_path_whitelist": "/"},
        {"extensions.experiments.enabled": True},
        {"marionette.port": 1},
        {"remote.prefs.recommended": False},
        {"logging.config.LOG_FILE": "/root/x"},
        {"media.getusermedia.aec_dump": "/root"},
        {"security.turn_off_all_security_so_that_viruses_can_take_over_this_computer": True},
        {"helpers.global_mime_types_file": "/tmp/x"},
        {"browser.safebrowsing.provider.x.updateURL": "http://x"},
        {"privacy.userContext.extension": "x"},
        {"permissions.default.loopback-network": 1},
        {"permissions.default.local-network": 1},
        {"app.update.log.file": True},
        {"app.update.staging.enabled": True},
        {"browser.newtabpage.activity-stream.asrouter.devtoolsEnabled": True},
        {"browser.urlbar.of_tomorrow": True},
        {"privacy.of_tomorrow": 1},
    ],
)
def test_a_preference_of_firefox_that_is_not_listed_is_refused(prefs: Any) -> None:
    assert "this machine" in refusal("firefox_prefs", prefs)


@pytest.mark.parametrize(
    "args",
    [
        ["-remote-allow-system-access"],
        ["--Remote-Allow-System-Access"],
        ["-profile", "/root"],
        ["--profile=/root"],
        ["-P", "default"],
        ["-CreateProfile", "x /root"],
        ["-ProfileManager"],
        ["-app", "/tmp/application.ini"],
        ["-greomni", "/tmp/omni.ja"],
        ["-start-debugger-server", "6000"],
        ["-remote-debugging-port", "1"],
        ["-remote-allow-hosts", "evil.example"],
        ["-marionette-port", "1"],
        ["-MOZ_LOG_FILE=/root/x"],
        ["-screenshot", "/root/x"],
        ["-recording-output", "/root/x"],
        ["-backgroundtask", "x"],
        ["-jsdebugger"],
        ["-chrome", "file:///tmp/x"],
        ["-url", "file:///etc/shadow"],
        ["-width", "-profile", "/root"],
        ["-width"],
        ["file:///etc/shadow"],
        ["/etc/shadow"],
        ["/profile"],
        ["about:config"],
        ["-headless -profile /root"],
        ["-headless\n-profile"],
        [""],
    ],
)
def test_an_argument_for_firefox_that_is_not_listed_is_refused(args: list[str]) -> None:
    assert "this machine" in refusal("firefox_args", ["-headless", *args])


@pytest.mark.parametrize(
    "env",
    [
        {"LD_PRELOAD": "/tmp/x.so"},
        {"MOZ_LOG_FILE": "/root/x"},
        {"PATH": "/tmp"},
        {"HOME": "/root"},
        {"GTK_MODULES": "x"},
        {"MOZ_DISABLE_CONTENT_SANDBOX": "1"},
        {"TZ": "/etc/shadow"},
        {"TZ": "../../etc/shadow"},
        {"LANG": "../../x"},
        {"MOZ_HEADLESS": "1\n"},
    ],
)
def test_a_variable_for_firefox_that_is_not_listed_is_refused(env: Any) -> None:
    assert "'env'" in refusal("firefox_env", env)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berlin", "America/North_Dakota/New_Salem", "America/Port-au-Prince", "Etc/GMT+5", "EST5EDT"],
)
def test_a_harmless_variable_for_firefox_passes(zone: str) -> None:
    env = {"MOZ_HEADLESS": "1", "TZ": zone, "LANG": "de_DE.UTF-8"}

    assert Sieve().firefox_env(env, where=WHERE) == env


def test_a_long_time_zone_takes_no_time() -> None:
    began = time.thread_time()

    for _ in range(100):  # As many sets of capabilities may each have one.
        refusal("firefox_env", {"TZ": "z" * 120})

    assert time.thread_time() - began < 2.0


@pytest.mark.parametrize(
    "name", ["user-data-dir", "password-store", "remote-debugging-port", "", "no-sandbox"]
)
def test_a_switch_that_keeps_the_browser_to_itself_cannot_be_left_out(name: str) -> None:
    assert "this machine" in refusal("chromium_excluded", ["enable-automation", name])


def test_switches_that_a_tutorial_leaves_out_are_left_out() -> None:
    given = ["enable-automation", "--enable-logging", "disable-popup-blocking"]

    assert Sieve().chromium_excluded(given, where=WHERE) == [each.lstrip("-") for each in given]


# What an operator allows


def test_a_refusal_names_the_option_that_would_allow_it() -> None:
    assert refusal("chromium_args", ["--load-extension=/tmp"]).endswith(
        "leave it out, or have the operator add 'load-extension' to allow_browser_args"
    )


@pytest.mark.parametrize("allow", ["--load-extension, js-flags", "load-extension,js-flags", "*"])
def test_what_the_operator_allows_passes(allow: str) -> None:
    given = ["--load-extension=/opt/extension", "--js-flags=--allow-natives-syntax"]

    assert Sieve(Allowance.of(allow)).chromium_args(given, where=WHERE) == given


@pytest.mark.parametrize("allow", ["remote-debugging-address,profile,P", "*"])
def test_what_would_break_the_herd_is_not_the_operators_to_allow(allow: str) -> None:
    assert "is controlled by this machine" in refusal(
        "chromium_args", ["--remote-debugging-address=0.0.0.0"], allow
    )
    assert "is controlled by this machine" in refusal("firefox_args", ["-profile", "/x"], allow)


def test_what_is_dropped_passes_only_if_the_operator_names_it() -> None:
    given = ["--no-sandbox"]

    assert Sieve(Allowance.of("*")).chromium_args(given, where=WHERE) == []
    assert Sieve(Allowance.of("no-sandbox")).chromium_args(given, where=WHERE) == given


def test_preferences_and_variables_can_be_allowed_too() -> None:
    sieve = Sieve(Allowance.of("download.default_directory, print.always_print_silent, MOZ_LOG"))

    assert sieve.chromium_prefs({"download.default_directory": "/x"}, where=WHERE)
    assert sieve.firefox_prefs({"print.always_print_silent": True}, where=WHERE)
    assert sieve.firefox_env({"MOZ_LOG": "all:5"}, where=WHERE)
