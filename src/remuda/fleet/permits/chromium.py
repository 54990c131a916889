"""What a client may tell a Chromium: switches, flags of V8, preferences. Pure.

A switch is listed if it names no program, path or port of this machine, and gives a page no way around the
browser's own walls. Anything else is refused, so a switch of a version to come does no harm. Only unknown
features are left out of their switch, which is of use without them.
"""

import re
from collections.abc import Mapping
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import client_defaults
from remuda.fleet.permits.rules import (
    FLAG,
    HOSTS,
    LANGUAGES,
    NAMES,
    NUMBER,
    NUMBERS,
    TEXT,
    WEB_URL,
    WEB_URLS,
    Allowance,
    Form,
    ListOf,
    PreferenceRules,
    below,
    form,
    misshapen,
    one_of,
    owned,
    read_args,
    shown,
    table,
    unlisted,
    words,
)

_FLAGS = """
    aggressive-cache-discard allow-file-access-from-files allow-http-background-page
    allow-http-screen-capture allow-insecure-localhost allow-legacy-extension-manifests
    allow-loopback-in-peer-connection allow-outdated-plugins allow-pre-commit-input
    allow-running-insecure-content allow-silent-push ash-no-nudges
    auto-accept-camera-and-microphone-capture auto-accept-this-tab-capture auto-open-devtools-for-tabs
    auto-reject-this-tab-capture block-new-web-contents bypass-app-banner-engagement-checks
    deny-permission-prompts deterministic-mode disable-2d-canvas-clip-aa disable-3d-apis
    disable-accelerated-2d-canvas disable-accelerated-mjpeg-decode disable-accelerated-video-decode
    disable-accelerated-video-encode disable-add-to-shelf disable-application-cache disable-audio-input
    disable-audio-output disable-auto-reload disable-autofill-keyboard-accessory-view[8]
    disable-back-forward-cache disable-background-downloads disable-background-media-suspend
    disable-background-mode disable-background-networking disable-background-timer-throttling
    disable-backgrounding-occluded-windows disable-best-effort-tasks disable-breakpad
    disable-browser-side-navigation disable-bundled-ppapi-flash disable-canvas-aa disable-checker-imaging
    disable-client-side-phishing-detection disable-cloud-import disable-component-cloud-policy
    disable-component-extensions-with-background-pages disable-component-update
    disable-composited-antialiasing disable-crash-reporter disable-datasaver-prompt disable-default-apps
    disable-desktop-notifications disable-dev-shm-usage disable-device-discovery-notifications
    disable-dinosaur-easter-egg disable-domain-blocking-for-3d-apis disable-domain-reliability
    disable-edgeupdater disable-extensions disable-extensions-http-throttling
    disable-fetching-hints-at-navigation-start disable-field-trial-config
    disable-font-subpixel-positioning disable-frame-rate-limit disable-fre
    disable-gesture-requirement-for-media-playback disable-gesture-requirement-for-presentation
    disable-gesture-typing disable-gl-drawing-for-tests disable-glsl-translator disable-gpu
    disable-gpu-compositing disable-gpu-driver-bug-workarounds disable-gpu-early-init
    disable-gpu-memory-buffer-compositor-resources disable-gpu-memory-buffer-video-frames
    disable-gpu-process-crash-limit disable-gpu-program-cache disable-gpu-rasterization
    disable-gpu-shader-disk-cache disable-gpu-vsync disable-gpu-watchdog disable-hang-monitor
    disable-histogram-customizer disable-http2 disable-hyperlink-auditing disable-image-animation-resync
    disable-image-loading disable-impl-side-painting disable-infobars
    disable-input-event-activation-protection disable-ipc-flooding-protection disable-java
    disable-javascript disable-javascript-harmony-shipping disable-lazy-loading disable-lcd-text
    disable-local-storage disable-logging disable-login-animations disable-low-end-device-mode
    disable-low-res-tiling disable-media-session-api disable-modal-animations
    disable-new-content-rendering-timeout disable-notifications disable-offer-store-unmasked-wallet-cards
    disable-offer-upload-credit-cards disable-oopr-debug-crash-dump disable-overlay-scrollbar
    disable-partial-raster disable-password-generation disable-password-manager-reauthentication
    disable-permissions-api disable-pinch disable-plugins disable-plugins-discovery
    disable-popup-blocking disable-prefer-compositing-to-lcd-text disable-presentation-api
    disable-print-preview disable-prompt-on-repost disable-pushstate-throttle disable-quic
    disable-reading-from-canvas disable-remote-fonts disable-remote-playback-api
    disable-renderer-accessibility disable-renderer-backgrounding disable-rgba-4444-textures
    disable-rtc-smoothness-algorithm disable-save-password-bubble disable-scroll-to-text-fragment
    disable-search-engine-choice-screen disable-session-crashed-bubble disable-session-storage
    disable-shared-workers disable-signin-promo disable-single-click-autofill
    disable-site-isolation-for-policy disable-site-isolation-trials disable-skia-runtime-opts
    disable-smooth-scrolling disable-software-compositing-fallback disable-software-rasterizer
    disable-speech-api disable-speech-synthesis-api disable-stack-profiler disable-suggestions-ui
    disable-sync disable-sync-preferences disable-tab-for-desktop-share disable-threaded-animation
    disable-threaded-compositing disable-threaded-scrolling disable-top-sites disable-touch-drag-drop
    disable-translate disable-update disable-updater-scheduler disable-v8-idle-tasks
    disable-video-capture-use-gpu-memory-buffer disable-view-source disable-voice-input
    disable-wake-on-wifi disable-web-resources disable-web-security disable-webgl disable-webgl2
    disable-webrtc disable-webrtc-encryption disable-webrtc-hw-decoding disable-webrtc-hw-encoding
    disable-xss-auditor disable-zero-copy disallow-non-exact-resource-reuse dns-prefetch-disable
    edge-skip-compat-layer-relaunch enable-accelerated-2d-canvas enable-accelerated-video-decode
    enable-async-dns enable-auto-reload enable-automation enable-begin-frame-control
    enable-caret-browsing enable-crash-reporter enable-experimental-web-platform-features
    enable-experimental-webassembly-features enable-fast-unload enable-font-antialiasing
    enable-future-v8-vm-features enable-global-privacy-control enable-gpu enable-gpu-rasterization
    enable-javascript-harmony enable-lcd-text enable-low-end-device-mode enable-media-stream
    enable-native-gpu-memory-buffers enable-network-information-downlink-max enable-parallel-downloading
    enable-potentially-annoying-security-features enable-precise-memory-info
    enable-prefer-compositing-to-lcd-text enable-privacy-sandbox-ads-apis enable-quic
    enable-smooth-scrolling enable-spatial-navigation
    enable-speech-input enable-strict-mixed-content-checking enable-strict-powerful-feature-restrictions
    enable-surface-synchronization enable-tls13-early-data enable-touch-drag-drop enable-touchview
    enable-unsafe-swiftshader enable-unsafe-webgpu enable-usermedia-screen-capturing enable-viewport
    enable-viewport-meta enable-vulkan enable-webgl enable-webgl-developer-extensions
    enable-webgl-draft-extensions enable-zero-copy export-tagged-pdf force-dark-mode force-first-run
    force-high-contrast force-overlay-fullscreen-video force-prefers-no-reduced-motion
    force-prefers-reduced-motion force-renderer-accessibility generate-pdf-document-outline guest
    hide-crash-restore-bubble hide-icons hide-scrollbars ignore-autoplay-restrictions
    ignore-certificate-errors ignore-gpu-blacklist ignore-gpu-blocklist ignore-ssl-errors
    ignore-urlfetcher-cert-requests incognito keep-alive-for-test kiosk kiosk-printing
    log-gpu-control-list-decisions metrics-recording-only mute-audio new-window no-crash-upload
    no-default-apps no-default-browser-check no-error-dialogs no-experiments no-first-run
    no-pdf-header-footer no-pings no-proxy-server no-report-upload no-service-autorun no-startup-window
    no-user-gesture-required noerrdialogs overscroll-history-navigation process-per-site process-per-tab
    proxy-auto-detect pull-to-refresh reduce-accept-language reduce-user-agent-minor-version
    restore-last-session run-all-compositor-stages-before-draw safebrowsing-disable-auto-update
    safebrowsing-disable-download-protection safebrowsing-disable-extension-blacklist
    short-reporting-delay show-fps-counter show-paint-rects silent-debugger-extension-api
    site-per-process start-fullscreen start-maximized start-minimized
    suppress-message-center-popups top-chrome-touch-ui touch-events unlimited-storage
    unsafely-disable-devtools-self-xss-warnings use-fake-ui-for-digital-identity use-fake-ui-for-fedcm
    use-fake-ui-for-media-stream use-mobile-user-agent use-mock-keychain
    webtransport-developer-mode webview-disable-safebrowsing-support wm-window-animations-disabled
"""
_WORD = form(r"[A-Za-z0-9_.-]{0,64}", "a word")
_ORIGINS = form(r"(?i)[A-Za-z0-9_.:,*/\[\]-]*", "origins separated by commas")
# What only opens what pages can do with pages. MojoJS, for one, would let a page call the browser itself, and
# there are too many such names to list those instead.
_ENABLED_FEATURES = client_defaults.ENABLED_FEATURES | words(
    """
    AutomationControlled BackForwardCache BrowsingTopics CanvasOopRasterization CDPScreenshotNewSurface
    CookiesWithoutSameSiteMustBeSecure CustomElementsV0 DefaultANGLEVulkan DisableAhemAntialias
    ExperimentalJavaScript FedCmWithoutWellKnownEnforcement FencedFrames GenericSensorExtraClasses
    GlobalMediaControls HTMLImports HttpsUpgrades IdleDetection InterestGroupStorage
    LazyFrameLoading LazyImageLoading MediaRouter MiddleClickAutoscroll NetworkService
    NetworkServiceInProcess OverlayScrollbar ParallelDownloading PartitionedCookies
    PlatformHEVCDecoderSupport Prerender2 PrivacySandboxAdsAPIsOverride ReduceUserAgent
    RunVideoCaptureServiceInBrowserProcess SameSiteByDefaultCookies SecurePaymentConfirmationBrowser
    ShadowDOMV0 SharedArrayBuffer SkiaGraphite StorageAccessAPI ThirdPartyStoragePartitioning Translate
    TranslateUI UseOzonePlatform
    UseSkiaRenderer VaapiVideoDecodeLinuxGL VaapiVideoDecoder VaapiVideoEncoder ViewTransition
    VizDisplayCompositor Vulkan VulkanFromANGLE WebAssemblySimd WebAssemblyThreads WebContentsForceDark
    WebGPU WebMachineLearningNeuralNetwork WebMCP WebRTCPipeWireCapturer WebShare
"""
)
# What tutorials turn off as well. Not what keeps pages of the web from addresses of this machine.
_DISABLED_FEATURES = (
    _ENABLED_FEATURES
    | client_defaults.DISABLED_FEATURES
    | words(
        """
    AutofillServerCommunication BackgroundFetch BlinkGenPropertyTrees CalculateNativeWinOcclusion
    ChromeWhatsNewUI ComponentUpdater DisableLoadExtensionCommandLineSwitch DownloadBubble
    DownloadBubbleV2 EyeDropper FlashDeprecationWarning GlobalMediaControlsCastStartStop
    HardwareMediaKeyHandling InfiniteSessionRestore InsecureDownloadWarnings
    InterestFeedContentSuggestions IsolateOrigins MediaSessionService NetworkPrediction
    OmniboxPopupShortcut OmniboxUIFeedback OptimizationGuideModelDownloading OptimizationHintsFetching
    OptimizationTargetPrediction PasskeyAuth PasswordLeakDetection PrivacySandboxSettings4 ReadLater
    RendererCodeIntegrity SecurePaymentConfirmation SidePanelPinning TrackingProtection3pcd
    UseChromeOSDirectVideoDecoder UserAgentClientHint WebAuthentication WebOTP
    WebRtcHideLocalIpsWithMdns WebUSB
    site-per-process
    """
    )
)
FEATURE_SWITCHES: Mapping[str, frozenset[str]] = {
    "disable-features": _DISABLED_FEATURES,
    "enable-blink-features": _ENABLED_FEATURES,
    "enable-features": _ENABLED_FEATURES,
}
"""Which features each of these switches may name. Others are left out: clients often have new ones."""
_BLINK_SETTINGS = words(
    """
    availableHoverTypes availablePointerTypes forceDarkModeEnabled hideScrollbars imagesEnabled
    loadsImagesAutomatically minimumFontSize preferredColorScheme primaryHoverType primaryPointerType
    scriptEnabled
    """
)
_V8_NAMES = words(
    """
    expose-gc flush-bytecode harmony jitless lazy lite-mode maglev opt optimize-for-size predictable
    single-threaded single-threaded-gc sparkplug turbofan
    """
)
_V8_NUMBER_NAMES = words(
    """
    gc-interval initial-heap-size initial-old-space-size max-heap-size max-old-space-size
    max-semi-space-size min-semi-space-size random-seed semi-space-growth-factor stack-size
    stack-trace-limit
    """
)
_V8_PROPOSAL = re.compile(r"(harmony|js|experimental-wasm)(-[a-z0-9]+)+")


def _is_v8_flag(token: str) -> bool:
    """Whether a flag only changes how V8 runs scripts.

    Not listed is what writes (--logfile, --prof, --trace-*, --redirect-*), loads (--snapshot-*) or opens the
    engine to the page (--allow-natives-syntax).
    """
    name, has_value, value = token.lstrip("-").replace("_", "-").partition("=")
    if has_value:
        return name in _V8_NUMBER_NAMES and value.isascii() and value.isdigit()
    name = name.removeprefix("no-")
    return name in _V8_NAMES or name.removeprefix("no") in _V8_NAMES or bool(_V8_PROPOSAL.fullmatch(name))


def _are_v8_flags(value: str) -> bool:
    # Tutorials have them in quotes, which no shell takes off here.
    return all(_is_v8_flag(token) for token in re.split(r"[\s,]+", value.strip(" '\"")) if token)


def _are_blink_settings(value: str) -> bool:
    pairs = [pair.partition("=") for pair in value.split(",")]
    return all(name in _BLINK_SETTINGS and _WORD.fits(given) for name, _, given in pairs)


_DEFAULTS = [default[2:].partition("=")[::2] for default in sorted(client_defaults.SWITCHES)]

SWITCHES: Mapping[str, Form] = {
    # The lists below hold for those that they have too.
    **{name: one_of(*(value for each, value in _DEFAULTS if each == name)) for name, _ in _DEFAULTS},
    **table(FLAG, _FLAGS),
    **table(
        NUMBER,
        """
        animation-duration-scale device-scale-factor disk-cache-size force-device-scale-factor
        force-gpu-mem-available-mb
        gpu-program-cache-size-kb high-dpi-support log-level max-active-webgl-contexts max-gum-fps
        max-web-media-player-count media-cache-size num-raster-threads renderer-process-limit v
        virtual-time-budget webrtc-max-cpu-consumption-percentage
        """,
    ),
    **table(NUMBERS, "ozone-override-screen-size window-position window-size"),
    **table(
        TEXT,
        """
        auto-select-desktop-capture-source auto-select-screen-capture-source
        auto-select-tab-capture-source-by-title auto-select-window-capture-source-by-title
        host-resolver-rules host-rules ignore-certificate-errors-spki-list proxy-server
        simulate-outdated-no-au unsafely-allow-protected-media-identifier-for-domain user-agent vmodule
        window-name
        """,
    ),
    **table(
        _WORD,
        """
        autoplay-policy cipher-suite-blacklist default-tile-height default-tile-width enable-logging
        font-render-hinting force-color-profile force-effective-connection-type
        force-raster-color-profile force-text-direction force-ui-direction
        force-webrtc-ip-handling-policy headless ozone-platform ozone-platform-hint ssl-version-max
        ssl-version-min test-type touch-selection-strategy use-angle use-cmd-decoder use-gl use-vulkan
        use-webgpu-adapter v8-cache-options webrtc-ip-handling-policy
        """,
    ),
    **table(LANGUAGES, "accept-lang lang"),
    **table(WEB_URL, "app proxy-pac-url"),
    # SeleniumBase's --uc asks for chrome://version/, which only shows something.
    "homepage": Form(lambda value: value == "chrome://version/" or WEB_URL.fits(value), WEB_URL.words),
    **table(_ORIGINS, "isolate-origins origin-to-force-quic-on unsafely-treat-insecure-origin-as-secure"),
    "blink-settings": Form(
        _are_blink_settings, f"settings of the names {', '.join(sorted(_BLINK_SETTINGS))}"
    ),
    # What a page cannot do is nothing that it could do to this machine.
    **table(NAMES, "disable-blink-features"),
    "default-background-color": form(r"[0-9A-Fa-f]{1,8}", "a colour such as 00000000"),
    "force-fieldtrials": one_of("*BackgroundTracing/default/"),
    "install-autogenerated-theme": form(r"\d{1,3},\d{1,3},\d{1,3}", "three numbers"),
    "js-flags": Form(_are_v8_flags, "harmless flags of V8, such as --expose-gc"),
    # Any other store asks a service of the machine.
    "password-store": one_of("basic"),
    # Only in that one are the herd's own preferences.
    "profile-directory": one_of("Default"),
    "proxy-bypass-list": HOSTS,
    "screen-info": form(r"[A-Za-z0-9{},.x=' -]*", "a description of a screen such as {1600x1200}"),
    "use-fake-device-for-media-stream": form(
        r"((device-count|fps|display-media-type)=[a-z0-9.]+(,|$))*",
        "such as device-count=2,fps=30",
    ),
}

DROPPED_SWITCHES = words(
    """
    allow-no-sandbox-job disable-gpu-sandbox disable-landlock-sandbox disable-namespace-sandbox
    disable-seccomp-filter-sandbox disable-setuid-sandbox dom-automation
    enable-unsafe-extension-debugging in-process-gpu ip-address-space-overrides no-sandbox
    no-zygote no-zygote-sandbox remote-allow-origins remote-debugging-pipe remote-debugging-port
    single-process
    """
)
"""Common in tutorials, harmless to leave out, and the herd's own: it decides about the sandbox, hands out the
way to DevTools, and gives neither pages nor DevTools more than they have by themselves."""
OWNED_SWITCHES = frozenset(("remote-debugging-address", "remote-debugging-io-pipes"))
"""What even an operator cannot allow: DevTools would be open to others, or closed to the herd."""
EXCLUDABLE_SWITCHES = words(
    """
    allow-pre-commit-input disable-background-networking disable-blink-features
    disable-client-side-phishing-detection disable-component-extensions-with-background-pages
    disable-component-update disable-default-apps disable-dev-shm-usage disable-extensions
    disable-hang-monitor disable-infobars disable-popup-blocking disable-prompt-on-repost disable-sync
    disable-web-resources enable-automation enable-blink-features enable-logging hide-scrollbars
    ignore-certificate-errors load-extension log-level metrics-recording-only mute-audio
    no-default-browser-check no-first-run no-service-autorun safebrowsing-disable-auto-update
    safebrowsing-disable-download-protection test-type
    """
)
"""What a client may have its driver leave out. Not `user-data-dir`: the browser would take its user's own
profile; nor what keeps it away from the keyring."""

_SWITCHED_PREFERENCES = """
    alternate_error_pages.enabled autofill.credit_card_enabled autofill.enabled autofill.profile_enabled
    background_mode.enabled browser.enable_spellchecking browser.show_home_button
    credentials_enable_autosignin credentials_enable_service dns_prefetching.enabled
    download.directory_upgrade download.prompt_for_download download_bubble.partial_view_enabled
    enable_do_not_track extensions.ui.developer_mode homepage_is_newtabpage https_only_mode_enabled
    local_discovery.notifications_enabled net.network_prediction_options password_manager_enabled
    payments.can_make_payment_enabled plugins.always_open_pdf_externally printing.enabled
    profile.block_third_party_cookies profile.cookie_controls_mode profile.exited_cleanly
    profile.password_manager_enabled profile.password_manager_leak_detection
    safebrowsing.disable_download_protection safebrowsing.enabled safebrowsing.enhanced
    safebrowsing.scout_reporting_enabled search.suggest_enabled session.restore_on_startup signin.allowed
    signin.allowed_on_next_startup spellcheck.use_spelling_service sync_promo.show_on_first_run_allowed
    translate.enabled user_experience_metrics.reporting_enabled webrtc.multiple_routes_enabled
    webrtc.nonproxied_udp_enabled
"""
# What pages may do. Not what they may do to the addresses of this machine and of its network
# (`local_network_access`), its files (`file_system_*`, `file_handling`) or its programs (`protocol_handler`).
_CONTENT = """
    ads ar automatic_downloads autoplay background_sync bluetooth_guard bluetooth_scanning
    captured_surface_control clipboard clipboard_read_write cookies durable_storage fedcm_active
    fedcm_idp_signin fullscreen geolocation hid_guard idle_detection images javascript javascript_jit
    keyboard_lock legacy_cookie_access local_fonts media_engagement media_stream media_stream_camera
    media_stream_mic metro_switch_to_desktop midi midi_sysex mixed_script mouselock
    multiple_automatic_downloads notifications payment_handler plugins popups ppapi_broker
    protected_media_identifier protocol_handlers push_messaging sensors serial_guard site_engagement
    smart_card_guard sound ssl_cert_decisions storage_access third_party_storage_partitioning
    top_level_storage_access usb_guard vr web_app_installation window_management window_placement
"""
# As some clients misspell them, too; Chromium then ignores them.
_DEFAULTS_OF_CONTENT = """
    default_content_setting_values default_content_settings managed_default_content_settings
    profile.default_content_setting_values profile.default_content_settings
    profile.managed_default_content_settings
"""
_EXCEPTIONS = ("content_settings", "profile.content_settings")
_IN_BRANCHES = frozenset().union(
    *(below(branch, _CONTENT) for branch in _DEFAULTS_OF_CONTENT.split()),
    below("NewTabPage", "CustomizeChromeExplicitlyClosed FooterVisible ModulesVisible"),
    below(
        "browser.window_placement",
        "always_on_top bottom left maximized right top work_area_bottom "
        "work_area_left work_area_right work_area_top",
    ),
    below(
        "privacy_sandbox",
        """
        apis_enabled apis_enabled_v2 consent_decision_made first_party_sets_enabled
        m1.ad_measurement_enabled m1.consent_decision_made m1.eea_notice_acknowledged m1.fledge_enabled
        m1.prompt_suppressed m1.restricted_notice_acknowledged m1.row_notice_acknowledged
        m1.topics_enabled notice_displayed related_website_sets_enabled topics_consent.consent_given
        """,
    ),
    below(
        "webkit.webprefs",
        """
        allow_running_insecure_content allow_scripts_to_close_windows default_fixed_font_size
        default_font_size dom_paste_enabled encrypted_media_enabled force_dark_mode_enabled java_enabled
        javascript_can_access_clipboard javascript_can_open_windows_automatically javascript_enabled
        loads_images_automatically minimum_font_size minimum_logical_font_size plugins_enabled
        shrinks_standalone_images_to_fit tabs_to_links text_areas_are_resizable uses_universal_detector
        """,
    ),
    # Of chrome://flags, which clients set here; Chromium then ignores them.
    words(
        """
        omnibox-local-history-zero-suggest-beyond-ntp omnibox-max-zero-suggest-matches
        omnibox-on-focus-suggestions-contextual-web omnibox-on-focus-suggestions-srp
        omnibox-trending-zero-prefix-suggestions-on-ntp omnibox-use-existing-autocomplete-client
        omnibox-zero-suggest-in-memory-caching omnibox-zero-suggest-prefetching
        omnibox-zero-suggest-prefetching-on-srp omnibox-zero-suggest-prefetching-on-web
        """
    ),
)
# How DevTools look.
_OF_DEVTOOLS = below(
    "devtools.preferences",
    """
    cacheDisabled currentDockState customFormatters disablePausedStateOverlay
    InspectorView.screencastSplitViewState InspectorView.splitViewState language last-dock-state
    network_log.preserve-log network_log.show-overview panel-selected-tab panel-selectedTab
    preserve-console-log preserveConsoleLog screencastEnabled showWhitespacesInEditor textEditorIndent
    ui-theme uiTheme
    """,
)
PREFERENCES = PreferenceRules(
    names={
        **dict.fromkeys((*_SWITCHED_PREFERENCES.split(), *_IN_BRANCHES), bool),
        **dict.fromkeys(_OF_DEVTOOLS, TEXT),
        "custom_links.initialized": bool,
        "homepage": WEB_URL,
        "intl.accept_languages": LANGUAGES,
        "intl.selected_languages": LANGUAGES,
        "partition.default_zoom_level.x": bool,
        "plugins.plugins_disabled": ListOf(TEXT),
        "printing.print_preview_sticky_settings.appState": TEXT,
        "profile.exit_type": _WORD,
        # As Selenium's own tests misspell them; Chromium then ignores them.
        "exit_type": _WORD,
        "exited_cleanly": bool,
        "session.startup_urls": WEB_URLS,
        "spellcheck.dictionaries": ListOf(LANGUAGES),
        "spellcheck.dictionary": LANGUAGES,
        "webrtc.ip_handling_policy": _WORD,
    },
    entries=(
        (tuple(f"{branch}.exceptions.{name}." for branch in _EXCEPTIONS for name in _CONTENT.split()), bool),
        (("translate_allowlists.", "translate_whitelists."), LANGUAGES),
    ),
    # Where files go is the herd's to say: a client asks for its downloads with `se:downloadsEnabled`.
    dropped=frozenset(("download.default_directory", "savefile.default_directory", "savefile.type")),
)
# Of chrome://flags; others let extensions at the browser's own pages, for one.
_EXPERIMENTS = words(
    """
    allow-insecure-localhost
    cookies-without-same-site-must-be-secure enable-experimental-web-platform-features enable-force-dark
    enable-quic enable-removing-all-third-party-cookies https-upgrades same-site-by-default-cookies
    smooth-scrolling test-third-party-cookie-phaseout tracking-protection-3pcd
    """
)
_EXPERIMENT = Form(
    lambda value: re.sub(r"@\d$", "", value) in _EXPERIMENTS,
    f"one of {', '.join(sorted(_EXPERIMENTS))}, with @1 or @2",
)
LOCAL_STATE = PreferenceRules(
    names={
        "background_mode.enabled": bool,
        "browser.enabled_labs_experiments": ListOf(_EXPERIMENT),
        "dns_over_https.mode": _WORD,
        "dns_over_https.templates": WEB_URLS,
        "hardware_acceleration_mode.enabled": bool,
        "intl.app_locale": LANGUAGES,
    },
    entries=(),
    dropped=frozenset(),
)

# Both are made in every profile before its client has the browser, without a right to write there.
PROGRAMS = "NativeMessagingHosts"
"""Where a Chromium looks in its profile for the programs that extensions may start."""
LIBRARIES = ("SODA", "TranslateKit", "WidevineCdm", "screen_ai")
"""Where it looks for the libraries of components. They come from the network, but the herd's browsers update
no components, and one that is there is not verified again."""

_SWITCH = re.compile(r"-{0,2}(?P<name>[A-Za-z0-9][A-Za-z0-9\[\]-]*)\s*(?:=(?P<value>.*))?")


def sift_args(given: Any, allowed: Allowance, *, where: str) -> tuple[list[str], list[str]]:
    """The switches that pass, as the browser takes them, and those that are dropped.

    InvalidArgument names the first one that neither passes nor is dropped.
    """
    kept, dropped = [], []
    for arg in read_args(given, where):
        found = _SWITCH.fullmatch(arg.strip())
        what = f"The argument {shown(arg)} in {where}"
        if found is None:
            raise InvalidArgument(
                f"{what} is not of the form --name or --name=value, and may harm this machine; leave it out"
            )
        # Chromium tells lower from upper case, so another case is another switch.
        name, value = found["name"], found["value"]
        if name in OWNED_SWITCHES:
            raise owned(what)
        if name in DROPPED_SWITCHES and name not in allowed.names:
            dropped.append(f"--{name}")
            continue
        if name in FEATURE_SWITCHES and not allowed.covers(name):
            value, unknown = _sift_features(value or "", FEATURE_SWITCHES[name], allowed)
            if unknown:
                dropped.append(f"--{name}={unknown}")
                if not value:
                    continue
        elif not allowed.covers(name):
            rule = SWITCHES.get(name)
            if rule is None:
                raise unlisted(what, name)
            if not rule.fits(value or ""):
                raise misshapen(f"The value in {shown(arg)} in {where}", name, rule.words)
        # Written anew: what was checked is what is passed, whatever blanks and dashes it came with.
        kept.append(f"--{name}" if value is None else f"--{name}={value}")
    return kept, dropped


def _sift_features(value: str, known: frozenset[str], allowed: Allowance) -> tuple[str, str]:
    """The names of features that pass and those that do not, both as the browser takes them."""
    names = [name for each in value.split(",") if (name := each.strip())]
    passing = [name for name in names if name in known or allowed.covers(name)]
    return ",".join(passing), ",".join(name for name in names if name not in passing)


def sift_excluded(given: Any, allowed: Allowance, *, where: str) -> list[str]:
    """The switches that the driver, or Playwright, is to leave out of its own."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise InvalidArgument(f"{where} must be a list of strings")
    names = [name.strip().lstrip("-").partition("=")[0] for name in given]
    for name in names:
        if name not in EXCLUDABLE_SWITCHES and name not in allowed.names:
            raise unlisted(f"To leave out the switch {shown(name)} in {where}", name)
    return names
