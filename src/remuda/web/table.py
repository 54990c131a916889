"""Every route of the api role, declared once: the application and the OpenAPI document come from it."""

from remuda.grid.view import SessionDetail, SessionPage
from remuda.web import handlers
from remuda.web.graphql import GraphqlQuery, get_graphql, post_graphql
from remuda.web.grid4 import (
    ClearedAnswer,
    DistributorAnswer,
    GridSessionAnswer,
    GridStatusAnswer,
    QueueAnswer,
    clear_queue,
    distributor_status,
    grid_queue,
    grid_session,
    grid_status,
)
from remuda.web.grid4_nodes import (
    DrainAnswer,
    OwnerAnswer,
    StopAnswer,
    drain_node,
    owns_session,
    stop_session,
)
from remuda.web.handlers import (
    AfterQuery,
    ConnectionList,
    Deleted,
    Ended,
    LogQuery,
    OrchestratorList,
    RoleList,
    ServiceState,
    SessionLog,
    SessionsQuery,
    WaitingList,
    WorkerList,
)
from remuda.web.health import Health, healthz, readyz
from remuda.web.overview import Overview
from remuda.web.route import Route
from remuda.web.selenoid import Ping, get_log, ping
from remuda.web.videos import delete_video, get_video

HTML = "text/html"
JSON = "application/json"

ROUTES = (
    Route("GET", "/api/overview", "Everything the dashboard shows, at once", handlers.get_overview, Overview),
    Route(
        "GET",
        "/api/live",
        "The overview whenever it changes, as Server-Sent Events",
        handlers.watch,
        "text/event-stream",
    ),
    Route(
        "GET",
        "/api/sessions",
        "Sessions: the active ones oldest first, or a page of the terminated ones",
        handlers.list_sessions,
        SessionPage,
        query=SessionsQuery,
    ),
    Route(
        "GET",
        "/api/sessions/{session}",
        "One session with its capabilities and log; what looks secret is masked",
        handlers.get_session,
        SessionDetail,
    ),
    Route("DELETE", "/api/sessions/{session}", "End a session", handlers.end_session, Ended),
    Route(
        "DELETE",
        "/api/sessions/{session}/artifacts",
        "Delete what is stored of a session, as soon as it has ended",
        handlers.delete_artifacts,
        Deleted,
    ),
    Route(
        "GET",
        "/api/sessions/{session}/log",
        "What happened to a session",
        handlers.get_session_log,
        SessionLog,
        query=LogQuery,
    ),
    Route(
        "GET",
        "/api/sessions/{session}/log/live",
        "The same as it happens, as Server-Sent Events; 204 when nothing more will",
        handlers.watch_session_log,
        "text/event-stream",
        query=AfterQuery,
    ),
    Route(
        "GET",
        "/api/orchestrators",
        "Orchestrators with their browsers and slots",
        handlers.list_orchestrators,
        OrchestratorList,
    ),
    Route(
        "POST",
        "/api/orchestrators/{orchestrator}/drain",
        "Take an orchestrator out of service: no new sessions, those it has go on",
        handlers.drain_orchestrator,
        ServiceState,
    ),
    Route(
        "DELETE",
        "/api/orchestrators/{orchestrator}/drain",
        "Put it back in service",
        handlers.resume_orchestrator,
        ServiceState,
    ),
    Route(
        "GET",
        "/api/playwright/workers",
        "Playwright workers with their connections",
        handlers.list_workers,
        WorkerList,
    ),
    Route(
        "GET",
        "/api/playwright/connections",
        "Playwright connections that are open, oldest first",
        handlers.list_connections,
        ConnectionList,
    ),
    Route(
        "GET",
        "/api/playwright/queue",
        "Playwright clients that wait for a place",
        handlers.list_waiting,
        WaitingList,
    ),
    Route("GET", "/api/roles", "The roles that run", handlers.list_roles, RoleList),
    Route("GET", "/api/openapi.json", "This description", handlers.get_openapi, JSON),
    Route("GET", "/api/docs", "This description, for people", handlers.get_docs, HTML),
    Route("GET", "/status", "The herd in the shape of Selenium Grid 4", grid_status, GridStatusAnswer),
    Route(
        "GET",
        "/se/grid/distributor/status",
        "The nodes of that status alone",
        distributor_status,
        DistributorAnswer,
    ),
    Route(
        "GET",
        "/se/grid/session/{session}",
        "A session, as Selenium Grid's session map has it",
        grid_session,
        GridSessionAnswer,
    ),
    Route(
        "POST",
        "/se/grid/distributor/node/{node}/drain",
        "Take an orchestrator out of service, where Selenium Grid has it",
        drain_node,
        DrainAnswer,
    ),
    Route("POST", "/se/grid/node/drain", "The same of a herd's only orchestrator", drain_node, DrainAnswer),
    Route("GET", "/se/grid/node/owner/{session}", "Whether a session runs here", owns_session, OwnerAnswer),
    Route("DELETE", "/se/grid/node/session/{session}", "End a session", stop_session, StopAnswer),
    Route("GET", "/se/grid/newsessionqueue/queue", "Sessions that wait for a slot", grid_queue, QueueAnswer),
    Route(
        "DELETE",
        "/se/grid/newsessionqueue/queue",
        "Send everybody away who waits for a slot",
        clear_queue,
        ClearedAnswer,
    ),
    Route(
        "GET",
        "/graphql",
        "The herd in GraphQL: Selenium Grid's schema and WebGrid's",
        get_graphql,
        JSON,
        query=GraphqlQuery,
    ),
    Route("POST", "/graphql", "The same, with the query in a JSON body", post_graphql, JSON),
    Route("GET", "/video/{name}", "A session's video, where Selenoid has it", get_video, "video/mp4"),
    Route("DELETE", "/video/{name}", "Delete a session's video and other artifacts", delete_video, Deleted),
    Route(
        "GET", "/logs/{session}", "What happened to a session, where Selenoid has it", get_log, "text/plain"
    ),
    Route("GET", "/ping", "Selenoid's question whether it lives", ping, Ping),
    Route("GET", "/healthz", "Whether the process lives", healthz, Health),
    Route("GET", "/readyz", "Whether a session could be created; 503 says why not", readyz, Health),
    Route("GET", "/", "The dashboard", handlers.get_dashboard, HTML),
    Route("GET", "/ui", "The same, where Selenium Grid has its own", handlers.get_dashboard, HTML),
    Route("GET", "/static/{path:path}", "The dashboard's files", handlers.get_file, "*/*"),
)
