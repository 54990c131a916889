"""What clients tell a Chromium by default. Written by `make clients`, from:

playwright-core 1.50.1, playwright-core 1.51.1, playwright-core 1.52.0, playwright-core 1.53.2,
playwright-core 1.54.2, playwright-core 1.55.1, playwright-core 1.56.1, playwright-core 1.57.0,
playwright-core 1.58.2, playwright-core 1.59.1, playwright-core 1.60.0, playwright-core 1.61.1,
playwright-core 1.62.1, playwright-core 1.63.0, playwright-core 1.64.1, playwright-core 1.65.1,
puppeteer-core 22.15.0, puppeteer-core 23.11.1, puppeteer-core 24.43.1, puppeteer-core 25.16.0,
chromedriver 156.0.8078.79
"""

from remuda.fleet.permits.rules import words

ENABLED_FEATURES = words(
    """
    CDPScreenshotNewSurface PdfOopif SkipListAccountsWithoutGaiaCookies
    """
)
DISABLED_FEATURES = words(
    """
    AcceptCHFrame AimEnabled AutoDeElevate AutoExpandDetailsElement AvoidCorsURLLoaderRestartOnRedirect
    AvoidUnnecessaryBeforeUnloadCheckSync BlockOriginHeaderModificationOnRedirect
    BoundaryEventDispatchTracksNodeRemoval CertificateTransparencyComponentUpdater
    DeferRendererTasksAfterInput DestroyProfileOnBrowserClose DialMediaRouteProvider
    ExtensionManifestV2Disabled GlobalMediaControls HttpsFirstBalancedModeAutoEnable HttpsUpgrades
    IgnoreDuplicateNavs ImprovedCookieControls IsolateSandboxedIframes LazyFrameLoading LensOverlay
    MediaRouter NetworkTimeServiceQuerying OptimizationHints PaintHolding PlzDedicatedWorker
    PreconnectToSearch Prewarm ProcessPerSiteUpToMainFrameThreshold RenderDocument
    TcpPortRandomizationWin ThirdPartyStoragePartitioning Translate WebUIOmniboxAimPopup
    WebUIOmniboxPopup WebUIReloadButton msEdgeUpdateLaunchServicesPreferredVersion msForceBrowserSignIn
    """
)
SWITCHES = words(
    """
    --allow-pre-commit-input --disable-back-forward-cache --disable-background-networking
    --disable-background-timer-throttling --disable-backgrounding-occluded-windows --disable-breakpad
    --disable-client-side-phishing-detection --disable-component-extensions-with-background-pages
    --disable-component-update --disable-crash-reporter --disable-default-apps --disable-dev-shm-usage
    --disable-edgeupdater --disable-extensions --disable-field-trial-config --disable-hang-monitor
    --disable-infobars --disable-ipc-flooding-protection --disable-popup-blocking
    --disable-prompt-on-repost --disable-renderer-backgrounding --disable-search-engine-choice-screen
    --disable-stack-profiler --disable-sync --disable-updater-scheduler --do-not-de-elevate
    --edge-skip-compat-layer-relaunch --enable-automation --enable-logging --enable-unsafe-swiftshader
    --export-tagged-pdf --force-color-profile=srgb --generate-pdf-document-outline --headless
    --headless=new --hide-scrollbars --log-level=0 --metrics-recording-only --mute-audio
    --no-default-browser-check --no-first-run --no-service-autorun --no-startup-window
    --password-store=basic --test-type=webdriver --unsafely-disable-devtools-self-xss-warnings
    --use-mock-keychain
    """
)
"""Each with its value, which is the only one that the table allows."""
