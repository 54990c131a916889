"""Every route of the api role, declared once."""

from remuda.web.grid4 import GridStatusAnswer, QueueAnswer, grid_queue, grid_status
from remuda.web.health import Health, healthz, readyz
from remuda.web.route import Route

ROUTES = (
    Route("GET", "/status", "The herd in the shape of Selenium Grid 4", grid_status, GridStatusAnswer),
    Route("GET", "/wd/hub/status", "The same, for older clients", grid_status, GridStatusAnswer),
    Route("GET", "/se/grid/newsessionqueue/queue", "Sessions that wait for a slot", grid_queue, QueueAnswer),
    Route("GET", "/healthz", "Whether the process lives", healthz, Health),
    Route("GET", "/readyz", "Whether a session could be created", readyz, Health, may_fail_with=(503,)),
)
