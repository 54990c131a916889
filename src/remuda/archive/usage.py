"""What is metered of the archive: jobs, the pages and bytes that they fetched, and the time they took."""

from remuda.fleet.services import INCOMING, Action, Service, given

PAGES = "pages"
JOB_SECONDS = "jobSeconds"

ARCHIVE = Service(
    "archive",
    [
        Action(name="crawl"),
        Action(name="runJob", operation=None, adds={JOB_SECONDS: given("seconds")}, needs=("seconds",)),
        Action(
            name="fetch",
            operation=None,
            adds={PAGES: given("pages"), INCOMING: given("incomingBytes")},
            needs=("pages", "incomingBytes"),
        ),
    ],
    measures=(PAGES, INCOMING, JOB_SECONDS),
    timed=("crawl", "runJob"),
    by_herd=True,
)
