"""What is metered of Playwright: connections, how long they lasted, and their traffic."""

from remuda.fleet.services import INCOMING, OUTGOING, SECONDS, Action, Service, given, traffic

PLAYWRIGHT = Service(
    "playwright",
    [
        Action(name="connect"),
        Action(name="useBrowser", operation=None, adds={SECONDS: given("seconds")}, needs=("seconds",)),
        traffic("sendFrames"),
    ],
    measures=(SECONDS, INCOMING, OUTGOING),
    timed=("connect", "useBrowser"),
    by_herd=True,
)
