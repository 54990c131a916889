"""Accounts: who may use the herd, and how much of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from remuda.base.config import Config, HerdConfig, Interval, option
from remuda.base.confinement import ProtectionConfig
from remuda.base.errors import Misconfigured
from remuda.base.hosts import is_loopback
from remuda.fleet.room import OverviewPart, Room, Surroundings, WaitForRefusal
from remuda.fleet.sweep import Sweep

if TYPE_CHECKING:
    from remuda.accounts.accounts import AccountOverview
    from remuda.fleet.route import Route

LoginLifetime = Annotated[int, msgspec.Meta(ge=60, le=30 * 86400)]


@dataclass(frozen=True, kw_only=True)
class AccountsConfig:
    """Whether clients need a token."""

    auth: Literal["auto", "on", "off"] = option(
        "auto", "Whether clients need a token; auto means not on loopback, but on every other address."
    )
    insecure: bool = option(
        False, "The same as auth = off: on other addresses than loopback every client can use the herd."
    )
    ticket_lifetime: Interval = option(
        28800,
        "Seconds for which a WebSocket URL that the herd hands out is good; it ends with its session anyway.",
    )
    login_lifetime: LoginLifetime = option(43200, "Seconds for which a login to the dashboard is good.")


def is_auth_on(config: Config) -> bool:
    """Whether clients of this herd need a token."""
    options = config[AccountsConfig]
    if options.insecure or options.auth == "off":
        return False
    return options.auth == "on" or not is_loopback(config[HerdConfig].host)


def refuse_shared_display(config: Config) -> None:
    """Misconfigured if clients that need a token would get browsers on the operator's display."""
    if config[ProtectionConfig].share_display and is_auth_on(config):
        raise Misconfigured(
            "share_display (REMUDA_SHARE_DISPLAY) is on, but clients need a token here: their browsers would "
            "see, and type into, all that the display shows. Turn it off; each browser then gets a screen of "
            "its own"
        )


def _routes(on: Surroundings) -> Sequence["Route"]:
    from remuda.accounts.http import AccountsApi
    from remuda.accounts.keys import FILE, AccessKeys

    api = AccountsApi(
        on.store,
        keys=AccessKeys(on.store, on.config[HerdConfig].data / FILE),
        login_lifetime=on.config[AccountsConfig].login_lifetime,
        end_uses=[room.end_uses(on) for room in on.rooms if room.end_uses is not None],
    )
    return api.routes()


def _overview(on: Surroundings) -> "OverviewPart[AccountOverview]":
    from remuda.accounts.accounts import AccountOverview, Accounts

    return OverviewPart(AccountOverview, Accounts(on.store).overview, lambda overview: overview)


def _refusals(on: Surroundings) -> WaitForRefusal:
    from remuda.accounts.logins import wait_for_refusal

    return partial(wait_for_refusal, on.store)


def _sweeps(on: Surroundings) -> Mapping[str, Sweep]:
    from remuda.accounts.tokens import Tokens

    return {"expired tokens": Tokens(on.store).forget_expired}


ROOM = Room(
    name="accounts",
    config=[AccountsConfig],
    routes=_routes,
    about="Who may use the herd, and how much of it: tokens, limits, logins, the audit log",
    overview=_overview,
    sweeps=_sweeps,
    refusals=_refusals,
)
