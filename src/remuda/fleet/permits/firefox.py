"""What a client may tell a Firefox: arguments, variables, preferences. Pure.

Firefox reads the names of its arguments without regard to case, with one dash or two, and the value of an
argument from the next one.
"""

import re
from collections.abc import Mapping
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits.chromium import DROPPED_SWITCHES, FEATURE_SWITCHES, SWITCHES
from remuda.fleet.permits.rules import (
    HOST,
    HOSTS,
    LANGUAGES,
    NUMBER,
    TEXT,
    WEB_URL,
    WEB_URLS,
    Allowance,
    Form,
    PreferenceRules,
    below,
    check_text,
    form,
    misshapen,
    owned,
    read_args,
    shown,
    table,
    unlisted,
    words,
)

FLAGS = words(
    """
    allow-downgrade devtools foreground headless jsconsole kiosk new-instance no-remote private
    purgecaches safe-mode
    """
)
"""Arguments without a value."""
VALUES: Mapping[str, Form] = {
    **table(NUMBER, "height width"),
    **table(WEB_URL, "new-tab new-window private-window url"),
}
DROPPED_ARGS = (
    frozenset(("marionette", *SWITCHES, *FEATURE_SWITCHES, *DROPPED_SWITCHES)) - FLAGS - VALUES.keys()
)
"""Among them what is meant for a Chromium: clients give both the same list, and Firefox ignores it."""
OWNED_ARGS = words("app createprofile marionette-port p profile profilemanager remote-debugging-port")
"""What even an operator cannot allow: the driver would not find its browser."""

_LOCALE = form(r"[A-Za-z0-9_.@-]{1,40}(:[A-Za-z0-9_.@-]{1,40})*", "a locale such as de_DE.UTF-8")
VARIABLES: Mapping[str, Form] = {
    **table(
        form(r"[0-9]{0,5}", "a number"),
        """
        LIBGL_ALWAYS_SOFTWARE MOZ_ACCELERATED MOZ_HEADLESS MOZ_HEADLESS_HEIGHT MOZ_HEADLESS_WIDTH
        MOZ_WEBRENDER
        """,
    ),
    **table(_LOCALE, "LANG LANGUAGE LC_ALL LC_MESSAGES LC_TIME"),
    # Not a path: the C library would read that file.
    "TZ": form(
        r"[A-Za-z][A-Za-z0-9]{0,29}([/_+-][A-Za-z0-9]{1,20}){0,4}", "a time zone such as Europe/Berlin"
    ),
}

_SWITCHED = """
    accessibility.force_disabled app.normandy.enabled app.shield.optoutstudies.enabled
    browser.aboutwelcome.enabled browser.bookmarks.restore_default_bookmarks
    browser.cache.check_doc_frequency browser.cache.disk.capacity browser.cache.disk.enable
    browser.cache.disk.smart_size.enabled browser.cache.disk_cache_ssl browser.cache.memory.enable
    browser.cache.offline.enable browser.ctrlTab.recentlyUsedOrder browser.display.use_document_fonts
    browser.dom.window.dump.enabled browser.download.always_ask_before_handling_new_types
    browser.download.alwaysOpenPanel browser.download.animateNotifications browser.download.folderList
    browser.download.forbid_open_with browser.download.improvements_to_download_panel
    browser.download.open_pdf_attachments_inline browser.download.panel.shown
    browser.download.useDownloadDir browser.formfill.enable browser.helperApps.alwaysAsk.force
    browser.helperApps.deleteTempFileOnExit browser.link.open_newwindow
    browser.link.open_newwindow.restriction browser.offline browser.privatebrowsing.autostart
    browser.reader.detectedFirstArticle browser.search.suggest.enabled browser.search.update
    browser.sessionhistory.max_entries browser.sessionhistory.max_total_viewers
    browser.sessionstore.enabled browser.sessionstore.resume_from_crash browser.shell.checkDefaultBrowser
    browser.startup.page browser.tabs.animate browser.tabs.closeWindowWithLastTab
    browser.tabs.loadInBackground browser.tabs.warnOnClose browser.tabs.warnOnOpen
    browser.theme.content-theme browser.theme.toolbar-theme browser.translations.enable
    browser.uitour.enabled browser.warnOnQuit browser.xul.error_pages.enabled
    canvas.capturestream.enabled devtools.jsonview.enabled dom.allow_scripts_to_close_windows
    dom.disable_beforeunload dom.disable_open_during_load dom.disable_window_flip
    dom.disable_window_move_resize dom.enable_performance dom.event.clipboardevents.enabled
    dom.forms.datetime dom.gamepad.enabled dom.ipc.processCount dom.ipc.processPrelaunch.enabled
    dom.ipc.reportProcessHangs dom.max_chrome_script_run_time dom.max_script_run_time
    dom.min_background_timeout_value dom.popup_maximum dom.push.connection.enabled dom.push.enabled
    dom.require_user_interaction_for_beforeunload dom.security.https_first dom.security.https_only_mode
    dom.serviceWorkers.enabled dom.storage.enabled dom.successive_dialog_time_limit
    dom.w3c_touch_events.enabled dom.webaudio.enabled dom.webdriver.enabled dom.webgpu.enabled
    dom.webnotifications.enabled dom.webnotifications.serviceworker.enabled extensions.autoDisableScopes
    extensions.blocklist.enabled extensions.checkCompatibility.nightly extensions.enabledScopes
    extensions.getAddons.cache.enabled extensions.install.requireBuiltInCerts extensions.logging.enabled
    extensions.manifestV3.enabled extensions.pocket.enabled extensions.screenshots.disabled
    extensions.systemAddon.update.enabled extensions.update.autoUpdateDefault extensions.update.enabled
    extensions.update.notifyUser fission.autostart fission.bfcacheInParent
    fission.webContentIsolationStrategy focusmanager.testmode full-screen-api.allow-trusted-requests-only
    full-screen-api.warning.timeout general.smoothScroll general.warnOnAboutConfig geo.enabled
    geo.prompt.testing geo.prompt.testing.allow geo.provider.testing gfx.color_management.mode
    gfx.webrender.all gfx.webrender.force-disabled gfx.webrender.software hangmonitor.timeout
    javascript.enabled javascript.options.baselinejit javascript.options.ion javascript.options.mem.max
    javascript.options.showInConsole javascript.options.wasm layers.acceleration.disabled
    layers.acceleration.force-enabled layout.css.prefers-color-scheme.content-override
    media.autoplay.allow-muted media.autoplay.ask-permission media.autoplay.blocking_policy
    media.autoplay.default media.autoplay.enabled media.autoplay.enabled.user-gestures-needed
    media.eme.enabled media.encoder.webm.enabled media.ffmpeg.vaapi.enabled
    media.getusermedia.insecure.enabled media.getusermedia.screensharing.enabled
    media.gmp-manager.updateEnabled media.hardware-video-decoding.enabled media.mediasource.enabled
    media.navigator.enabled media.navigator.permission.disabled media.navigator.streams.fake
    media.peerconnection.enabled media.peerconnection.ice.loopback media.peerconnection.ice.no_host
    media.peerconnection.ice.obfuscate_host_addresses media.webspeech.synth.enabled
    network.captive-portal-service.enabled network.connectivity-service.enabled
    network.cookie.cookieBehavior network.cookie.lifetimePolicy network.cookie.sameSite.laxByDefault
    network.cookie.sameSite.noneRequiresSecure network.cookie.sameSite.schemeful network.dns.disableIPv6
    network.dns.disablePrefetch network.dns.echconfig.enabled network.http.http2.enabled
    network.http.http3.enable network.http.max-connections network.http.max-connections-per-server
    network.http.max-persistent-connections-per-server network.http.phishy-userpass-length
    network.http.pipelining network.http.pipelining.maxrequests network.http.prompt-temp-redirect
    network.http.proxy.pipelining network.http.response.timeout network.http.sendRefererHeader
    network.http.spdy.enabled network.http.speculative-parallel-limit network.http.use-cache
    network.manage-offline-status network.online network.predictor.enabled network.prefetch-next
    network.proxy.allow_bypass network.proxy.allow_hijacking_localhost network.proxy.ftp_port
    network.proxy.http_port network.proxy.share_proxy_settings network.proxy.socks_port
    network.proxy.socks_remote_dns network.proxy.socks_version network.proxy.ssl_port
    network.proxy.testing_localhost_is_secure_when_hijacked network.proxy.type
    network.stricttransportsecurity.preloadlist network.trr.mode network.websocket.allowInsecureFromHTTPS
    nglayout.initialpaint.delay offline-apps.allow_by_default pdfjs.disabled pdfjs.enabledCache.state
    places.history.enabled plugin.state.flash prompts.contentPromptSubDialog prompts.tab_modal.enabled
    reader.parse-on-load.enabled remote.active-protocols remote.log.truncate
    security.cert_pinning.enforcement_level security.certerrors.mitm.priming.enabled security.csp.enable
    security.dialog_enable_delay security.enterprise_roots.enabled security.fileuri.strict_origin_policy
    security.insecure_field_warning.contextual.enabled security.insecure_password.ui.enabled
    security.mixed_content.block_active_content security.mixed_content.block_display_content
    security.mixed_content.upgrade_display_content security.notification_enable_delay
    security.OCSP.enabled security.OCSP.require security.ssl.enable_ocsp_stapling
    security.ssl.require_safe_negotiation security.tls.version.enable-deprecated
    security.tls.version.fallback-limit security.tls.version.max security.tls.version.min
    security.warn_entering_secure security.warn_entering_weak security.warn_leaving_secure
    security.warn_submit_insecure security.warn_viewing_mixed services.sync.enabled signon.autofillForms
    signon.autologin.proxy signon.formlessCapture.enabled signon.management.page.breach-alerts.enabled
    signon.rememberSignons svg.disabled toolkit.cosmeticAnimations.enabled
    toolkit.legacyUserProfileCustomizations.stylesheets toolkit.networkmanager.disable
    toolkit.startup.max_resumed_crashes trailhead.firstrun.didSeeAboutWelcome ui.caretBlinkTime
    ui.prefersReducedMotion ui.systemUsesDarkTheme ui.use_standins_for_native_colors
    webdriver_accept_untrusted_certs webdriver_assume_untrusted_issuer webdriver_enable_native_events
    webgl.disabled webgl.enable-webgl2 webgl.force-enabled widget.non-native-theme.enabled
    xpinstall.signatures.required xpinstall.whitelist.required
"""
# On, off or a number, too. Not the whole branches: `permissions.default.loopback-network` would give pages of
# the web the ports of this machine, and `app.update.log.file` writes.
_IN_BRANCHES = frozenset().union(
    below(
        "app.update",
        """
        auto background.enabled checkInstallTime disabledForTesting enabled interval langpack.enabled
        notifyDuringDownload silent
        """,
    ),
    below(
        "browser.contentblocking",
        """
        cfr-milestone.enabled cryptomining.preferences.ui.enabled database.enabled
        fingerprinting.preferences.ui.enabled introCount
        reject-and-isolate-cookies.preferences.ui.enabled report.hide_vpn_banner report.lockwise.enabled
        report.monitor.enabled report.privacy_metrics.enabled report.show_mobile_app
        """,
    ),
    below(
        "browser.download.manager",
        """
        addToRecentDocs alertOnEXEOpen closeWhenDone focusWhenStarting quitBehavior resumeOnWakeDelay
        retention scanWhenDone showAlertInterval showAlertOnComplete showWhenStarting
        skipWinSecurityPolicyChecks useWindow
        """,
    ),
    below(
        "browser.newtabpage",
        """
        activity-stream.asrouter.userprefs.cfr.addons activity-stream.asrouter.userprefs.cfr.features
        activity-stream.discoverystream.enabled activity-stream.enabled
        activity-stream.feeds.aboutpreferences activity-stream.feeds.section.highlights
        activity-stream.feeds.section.topstories activity-stream.feeds.snippets
        activity-stream.feeds.system.topstories activity-stream.feeds.telemetry
        activity-stream.feeds.topsites activity-stream.showSearch activity-stream.showSponsored
        activity-stream.showSponsoredCheckboxes activity-stream.showSponsoredTopSites
        activity-stream.showWeather activity-stream.telemetry
        activity-stream.testing.shouldInitializeFeeds enabled enhanced introShown
        """,
    ),
    below(
        "browser.safebrowsing",
        """
        allowOverride blockedURIs.enabled downloads.enabled downloads.remote.block_dangerous
        downloads.remote.block_dangerous_host downloads.remote.block_potentially_unwanted
        downloads.remote.block_uncommon downloads.remote.enabled enabled malware.enabled only_top_level
        passwords.enabled phishing.enabled realTime.enabled update.enabled
        """,
    ),
    below(
        "browser.urlbar",
        """
        autocomplete.enabled autoFill ctrlCanonizesURLs decodeURLsOnCopy
        dnsResolveSingleWordsAfterSearch filter.javascript formatting.enabled
        maxHistoricalSearchSuggestions maxRichResults openViewOnFocus quicksuggest.enabled
        scotchBonnet.enableOverride searchSuggestionsChoice showSearchSuggestionsFirst
        speculativeConnect.enabled suggest.addons suggest.bookmark suggest.calculator suggest.engines
        suggest.history suggest.mdn suggest.openpage suggest.quickactions
        suggest.quicksuggest.nonsponsored suggest.quicksuggest.sponsored suggest.recentsearches
        suggest.remotetab suggest.searches suggest.topsites suggest.trending suggest.weather
        suggest.yelp trending.featureGate trimHttps trimURLs update1 update2 usepreloadedtopurls.enabled
        userMadeSearchSuggestionsChoice
        """,
    ),
    below(
        "datareporting",
        """
        healthreport.about.reportUrl.enabled healthreport.logging.consoleEnabled
        healthreport.service.enabled healthreport.service.firstRun healthreport.uploadEnabled
        policy.currentPolicyVersion policy.dataSubmissionEnabled policy.dataSubmissionEnabled.v2
        policy.dataSubmissionPolicyAccepted policy.dataSubmissionPolicyAcceptedVersion
        policy.dataSubmissionPolicyBypassAcceptance policy.dataSubmissionPolicyBypassNotification
        policy.minimumPolicyVersion usage.uploadEnabled
        """,
    ),
    below(
        "permissions.default",
        """
        camera desktop-notification geo image microphone script shortcuts stylesheet subdocument xr
        """,
    ),
    below(
        "privacy",
        """
        annotate_channels.strict_list.enabled antitracking.enableWebcompat bounceTrackingProtection.mode
        clearHistory.cache clearHistory.cookiesAndStorage clearOnShutdown.cache clearOnShutdown.cookies
        clearOnShutdown.downloads clearOnShutdown.formdata clearOnShutdown.history
        clearOnShutdown.offlineApps clearOnShutdown.openWindows clearOnShutdown.passwords
        clearOnShutdown.sessions clearOnShutdown.siteSettings
        clearOnShutdown_v2.browsingHistoryAndDownloads clearOnShutdown_v2.cache
        clearOnShutdown_v2.cookiesAndStorage clearOnShutdown_v2.formdata
        clearOnShutdown_v2.historyFormDataAndDownloads clearOnShutdown_v2.siteSettings cpd.cache
        cpd.cookies cpd.downloads cpd.formdata cpd.history cpd.offlineApps cpd.openWindows cpd.passwords
        cpd.sessions cpd.siteSettings donottrackheader.enabled donottrackheader.value
        dynamic_firstparty.use_site file_unique_origin fingerprintingProtection
        fingerprintingProtection.pbmode firstparty.isolate firstparty.isolate.block_post_message
        firstparty.isolate.restrict_opener_access firstparty.isolate.use_site
        globalprivacycontrol.enabled globalprivacycontrol.functionality.enabled
        globalprivacycontrol.pbmode.enabled history.custom
        partition.always_partition_third_party_non_cookie_storage partition.bloburl_per_partition_key
        partition.network_state partition.network_state.ocsp_cache partition.serviceWorkers
        popups.disable_from_plugins popups.maxReported popups.policy popups.showBrowserMessage
        purge_trackers.enabled query_stripping.enabled query_stripping.enabled.pbmode
        query_stripping.redirect query_stripping.strip_on_share.enabled reduceTimerPrecision
        reduceTimerPrecision.unconditional resistFingerprinting
        resistFingerprinting.autoDeclineNoUserInputCanvasPrompts
        resistFingerprinting.block_mozAddonManager resistFingerprinting.letterboxing
        resistFingerprinting.pbmode resistFingerprinting.randomDataOnCanvasExtract
        resistFingerprinting.reduceTimerPrecision.jitter
        resistFingerprinting.reduceTimerPrecision.microseconds resistFingerprinting.target_video_res
        sanitize.pending sanitize.sanitizeOnShutdown sanitize.timeSpan
        socialtracking.block_cookies.enabled spoof_english storagePrincipal.enabledForTrackers
        thirdparty.isolate trackingprotection.annotate_channels trackingprotection.cryptomining.enabled
        trackingprotection.emailtracking.enabled trackingprotection.emailtracking.pbmode.enabled
        trackingprotection.enabled trackingprotection.fingerprinting.enabled
        trackingprotection.introCount trackingprotection.lower_network_priority
        trackingprotection.pbmode.enabled trackingprotection.socialtracking.enabled
        usercontext.about_newtab_segregation.enabled userContext.enabled
        userContext.newTabContainerOnLeftClick.enabled userContext.ui.enabled
        webrtc.allowSilencingNotifications webrtc.hideGlobalIndicator webrtc.legacyGlobalIndicator
        webrtc.sharedTabWarning window.maxInnerHeight window.maxInnerWidth
        """,
    ),
    below(
        "toolkit.telemetry",
        """
        archive.enabled bhrPing.enabled coverage.opt-out enabled firstShutdownPing.enabled
        hybridContent.enabled initDelay minSubsessionLength newProfilePing.enabled
        pioneer-new-studies-available prompted rejected reportingpolicy.firstRun
        shutdownPingSender.enabled shutdownPingSender.enabledFirstSession unified unifiedIsOptIn
        updatePing.enabled
        """,
    ),
)
_MIME_TYPES = form(r"[A-Za-z0-9.+*/;=_, -]*", "media types separated by commas")
PREFERENCES = PreferenceRules(
    names={
        **dict.fromkeys((*_SWITCHED.split(), *_IN_BRANCHES), bool),
        "browser.download.viewableInternally.enabledTypes": form(r"[a-z0-9, ]*", "words"),
        "browser.helperApps.neverAsk.saveToDisk": _MIME_TYPES,
        "browser.newtab.url": WEB_URL,
        "browser.startup.homepage": WEB_URLS,
        "browser.startup.homepage_override.mstone": form(r"[A-Za-z0-9.]*", "a version or 'ignore'"),
        "browser.theme.content-theme": bool,
        "dom.popup_allowed_events": form(r"[a-z ]*", "words"),
        "extensions.webextensions.restrictedDomains": HOSTS,
        "general.useragent.locale": LANGUAGES,
        "general.useragent.override": TEXT,
        "geo.provider.network.url": WEB_URL,
        "geo.wifi.uri": WEB_URL,
        "intl.accept_languages": LANGUAGES,
        "intl.locale.matchOS": bool,
        "intl.locale.requested": LANGUAGES,
        "layout.css.devPixelsPerPx": NUMBER,
        "media.volume_scale": NUMBER,
        "network.dns.forceResolve": HOST,
        "network.dns.localDomains": HOSTS,
        "network.proxy.autoconfig_url": WEB_URL,
        # A host, and nothing else: socks takes file:///path/to/socket too.
        "network.proxy.ftp": HOST,
        "network.proxy.http": HOST,
        "network.proxy.no_proxies_on": HOSTS,
        "network.proxy.socks": HOST,
        "network.proxy.ssl": HOST,
        "network.trr.uri": WEB_URL,
        "plugin.disable_full_page_plugin_for_types": _MIME_TYPES,
        "startup.homepage_welcome_url": WEB_URL,
        "startup.homepage_welcome_url.additional": WEB_URL,
        "trailhead.firstrun.branches": form(r"[a-z-]*", "words"),
    },
    entries=(),
    dropped=frozenset(("browser.download.dir", "browser.download.downloadDir", "browser.download.lastDir")),
)

_ARG = re.compile(r"-{1,2}(?P<name>[A-Za-z][A-Za-z-]*)(?:=(?P<value>.*))?")


def sift_args(given: Any, allowed: Allowance, *, where: str) -> tuple[list[str], list[str]]:
    """The arguments that pass and those that are dropped; InvalidArgument names the first other one."""
    kept, dropped = [], []
    args = read_args(given, where)[::-1]
    while args:
        arg = args.pop()
        found = _ARG.fullmatch(arg.strip())
        what = f"The argument {shown(arg)} in {where}"
        if found is None:
            if allowed.covers(arg):
                kept.append(arg)
                continue
            raise unlisted(what, arg)
        name, value = found["name"].lower(), found["value"]
        if name in OWNED_ARGS:
            raise owned(what)
        if name in DROPPED_ARGS and name not in allowed.names:
            dropped.append(f"-{name}")
        elif allowed.covers(name) or name in FLAGS:
            kept.append(arg.strip())
        elif (rule := VALUES.get(name)) is None:
            raise unlisted(what, name)
        else:
            if value is None:
                value = args.pop() if args and not args[-1].startswith("-") else ""
            if not rule.fits(value):
                raise misshapen(f"The value {shown(value)} of {shown(arg)} in {where}", name, rule.words)
            kept += [f"-{name}", value] if value else [f"-{name}"]
    return kept, dropped


def check_variables(given: Any, allowed: Allowance, *, where: str) -> dict[str, str]:
    """The variables of the browser's environment, all of them harmless."""
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidArgument(f"'env' in {where} must be an object of strings")
    for name, value in given.items():
        what = f"The variable {shown(name)} in 'env' of {where}"
        check_text(value, what)
        if allowed.covers(name):
            continue
        rule = VARIABLES.get(name)
        if rule is None:
            raise unlisted(what, name)
        if not rule.fits(value):
            raise misshapen(f"{what} is {shown(value)}; it", name, rule.words)
    return given
