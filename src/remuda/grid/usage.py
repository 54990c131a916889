"""What is metered of the grid: sessions, the time for which they had a browser, and their traffic."""

from remuda.fleet.services import INCOMING, OUTGOING, SECONDS, Action, Service, given, traffic

COMMANDS = "commands"

GRID = Service(
    "grid",
    [
        Action(name="createSession"),
        Action(name="useBrowser", operation=None, adds={SECONDS: given("seconds")}, needs=("seconds",)),
        traffic("sendCommands", {COMMANDS: given("requests")}, needs=("requests",)),
    ],
    measures=(SECONDS, COMMANDS, INCOMING, OUTGOING),
    timed=("createSession", "useBrowser"),
    by_herd=True,
)
