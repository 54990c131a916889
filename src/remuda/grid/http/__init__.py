"""What the grid answers over HTTP beside WebDriver itself: the JSON API of sessions and orchestrators, and
the paths of Selenium Grid, Selenoid and GraphQL."""

from collections.abc import Sequence

from remuda.fleet.route import Route
from remuda.grid.http.api import OrchestratorApi, SessionApi
from remuda.grid.http.graphql import Graphql
from remuda.grid.http.selenium import SeleniumGrid
from remuda.grid.http.selenoid import Selenoid
from remuda.grid.http.settings import SettingsApi
from remuda.store import Store


def grid_routes(store: Store) -> Sequence[Route]:
    """The routes of this room."""
    api = (SessionApi(store), OrchestratorApi(store), SettingsApi(store))
    faces = (*api, SeleniumGrid(store), Selenoid(store), Graphql(store))
    return [route for face in faces for route in face.routes()]
