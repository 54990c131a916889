"""The JSON API of accounts, tokens, logins and the audit log."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.accounts.access import KNOWN_WITHIN
from remuda.accounts.accounts import AccountLimits, Accounts, AccountView
from remuda.accounts.audit import ENTRY_ID, KEPT_OF_ADMINS, Audit, AuditEntry
from remuda.accounts.guesses import Guesses
from remuda.accounts.keys import AccessKeys
from remuda.accounts.logins import Logins
from remuda.accounts.model import digest_of, read_duration, read_scopes
from remuda.accounts.tokens import Tokens, TokenView
from remuda.base.errors import InUse, RemudaError, Unauthorized, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.relay.head import LOGIN_COOKIE, SECURE_LOGIN_COOKIE
from remuda.fleet.room import EndUses
from remuda.fleet.route import ANY_TOKEN, Route, json_response, origin_of
from remuda.keyspace.accounts import METRICS_ACCESS
from remuda.store import Store

log = get_logger(__name__)

SETTLED_AFTER = 2 * KNOWN_WITHIN
"""Seconds after which nothing more begins with a token that was revoked: every gateway knows of it by then,
and what it had let in before has been written down."""

Limit = Annotated[int, Meta(ge=0, le=1_000_000)]
EntryId = Annotated[str, Meta(pattern=f"^({ENTRY_ID})?$")]


class TokensQuery(Struct):
    """Whose tokens; those of all accounts if none is named."""

    account: str = ""


class NewToken(Struct):
    """A token to make. `expires` is a duration such as `90d`; without it, the token is good until it is
    revoked. Without scopes it is good for `use`. With `access_key` it comes with a pair of keys for AWS
    Signature V4, which end with it."""

    name: str
    account: str
    scopes: list[str] = []
    expires: str | None = None
    access_key: bool = False


class CreatedToken(TokenView, kw_only=True):
    """A new token: this answer is the only one that has the token itself, and its keys if it has any."""

    token: str
    access_key_id: str | UnsetType = UNSET
    secret_access_key: str | UnsetType = UNSET


class TokenList(Struct):
    """Tokens by account and name."""

    tokens: list[TokenView]


class EndQuery(Struct):
    """Whether the sessions and connections end too."""

    end_sessions: bool = False


class RevokedToken(Struct):
    """The token that was revoked, and how many of its sessions and connections end."""

    account: str
    name: str
    ended: int


class AccountList(Struct):
    """Every account."""

    accounts: list[AccountView]


class LimitsChange(Struct):
    """Limits to set; null removes one, and what is not named stays."""

    sessions: Limit | UnsetType | None = UNSET
    rate: Limit | UnsetType | None = UNSET


class DeletedAccount(Struct):
    """The account that was deleted, the names of its tokens, and how many of its sessions and connections
    end."""

    name: str
    tokens: list[str]
    ended: int


class AuditQuery(Struct):
    """Which entries of the audit log: the newest, the newest before one, or the first after one."""

    limit: Annotated[int, Meta(ge=1, le=KEPT_OF_ADMINS)] = 100
    before: EntryId = ""
    after: EntryId = ""


class AuditPage(Struct):
    """Entries of the audit log, newest first; `cursor` is the `before` of the next page, null on the last."""

    entries: list[AuditEntry]
    cursor: str | None


class LoginRequest(Struct):
    """The token to log in with."""

    token: str


class WhoAmI(Struct):
    """What the token that was shown is good for, and the limits of its account. `auth` is false where no
    token is needed."""

    account: str
    token: str
    scopes: list[Scope]
    limits: AccountLimits
    auth: bool


class LoggedOut(Struct):
    """The end of a login; `ended` is false if there was none."""

    ended: bool


class AccountsApi:
    """Changes accounts and tokens, and shows them and what was changed."""

    def __init__(
        self, store: Store, *, keys: AccessKeys, login_lifetime: int, end_uses: Sequence[EndUses]
    ) -> None:
        self._store = store
        self._keys = keys
        self._tokens = Tokens(store)
        self._accounts = Accounts(store)
        self._logins = Logins(store, lifetime=login_lifetime)
        self._audit = Audit(store)
        self._guesses = Guesses()
        self._end_uses = end_uses

    # Tokens

    async def list_tokens(self, _request: Request, query: TokensQuery) -> TokenList:
        if query.account:
            await self._accounts.get(query.account)
            return TokenList(await self._tokens.of_account(query.account))
        return TokenList(await self._tokens.of_all())

    async def create_token(self, request: Request, body: NewToken) -> CreatedToken:
        token, view = await self._tokens.create(
            body.name,
            account=body.account,
            scopes=read_scopes(body.scopes),
            lifetime=None if body.expires is None else read_duration(body.expires),
        )
        subject = f"{view.account}/{view.name}"
        details = {"scopes": view.scopes, "expiresAt": view.expires_at}
        await self._record(request, "token.create", subject, **details)
        key_id, secret = self._keys.pair_of(digest_of(token)) if body.access_key else (UNSET, UNSET)
        return CreatedToken(token=token, access_key_id=key_id, secret_access_key=secret, **asdict(view))

    async def revoke_token(self, request: Request, query: EndQuery) -> RevokedToken:
        account, name = request.path_params["account"], request.path_params["name"]
        await self._tokens.revoke(name, account=account, keep_last_admin=_is_auth_on(request))
        await self._record(request, "token.revoke", f"{account}/{name}", endSessions=query.end_sessions)
        ended = await self._end(account, name) if query.end_sessions else 0
        return RevokedToken(account, name, ended)

    # Accounts

    async def list_accounts(self, _request: Request) -> AccountList:
        return AccountList(await self._accounts.all())

    async def change_account(self, request: Request, body: LimitsChange) -> AccountView:
        account = request.path_params["account"]
        changed = await self._accounts.change(account, sessions=body.sessions, rate=body.rate)
        limits = {name: limit for name, limit in asdict(body).items() if limit is not UNSET}
        await self._record(request, "account.set", account, **limits)
        return changed

    async def delete_account(self, request: Request, query: EndQuery) -> DeletedAccount:
        account = request.path_params["account"]
        view = await self._accounts.get(account)
        if view.in_use and not query.end_sessions:
            raise InUse(
                f"The account {account!r} has {view.in_use} sessions and connections; wait for their end, or "
                "have them ended with end_sessions=true (--end-sessions)."
            )
        tokens = await self._accounts.delete(account, keep_last_admin=_is_auth_on(request))
        details = {"tokens": tokens, "endSessions": query.end_sessions}
        await self._record(request, "account.delete", account, **details)
        ended = await self._end(account, None) if query.end_sessions else 0
        return DeletedAccount(account, tokens, ended)

    async def _end(self, account: str, token: str | None) -> int:
        """Ends what a token, or all tokens of the account, have started; how many that were."""
        await asyncio.sleep(SETTLED_AFTER)
        try:
            return sum([await end(account, token) for end in self._end_uses])
        except RemudaError as error:
            raise Unavailable(
                "It was revoked, but not all of its sessions and connections could be ended: "
                f"{error.message} End them one by one."
            ) from error

    # Logins

    async def log_in(self, request: Request, body: LoginRequest) -> Response:
        origin = origin_of(request)
        try:
            cookie, grant = await self._logins.begin(body.token)
        except Unauthorized:
            await self._store.hincrby(METRICS_ACCESS(), "login")
            # The front door slows down those who guess elsewhere, but does not see what is guessed here.
            await self._guesses.slow_down(origin.address)
            raise
        if origin.login:  # The browser forgets its last login, so that one could not be ended later.
            await self._logins.end(origin.login)
        origin = replace(origin, account=grant.account, token=grant.token, scopes=grant.scopes)
        await self._audit.record_routine(origin, "login", f"{grant.account}/{grant.token}")
        answer = json_response(await self._describe(origin))
        # Strict: no other site's page sends it along, so none can act in its person's name.
        answer.set_cookie(
            _cookie_name(origin),
            cookie,
            max_age=self._logins.lifetime,
            path="/",
            secure=origin.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        origin = origin_of(request)
        cookie = request.cookies.get(_cookie_name(origin), "")
        # The front door takes the cookie off, and says which it was.
        login = origin.login or (digest_of(cookie) if cookie else "")
        if login:
            await self._logins.end(login)
            await self._audit.record_routine(origin, "logout", f"{origin.account}/{origin.token}")
        answer = json_response(LoggedOut(bool(login)))
        answer.delete_cookie(
            _cookie_name(origin),
            path="/",
            secure=origin.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def who_am_i(self, request: Request) -> WhoAmI:
        return await self._describe(origin_of(request))

    async def _describe(self, origin: Origin) -> WhoAmI:
        limits = await self._accounts.limits(origin.account)
        return WhoAmI(origin.account, origin.token, sorted(origin.scopes), limits, auth=bool(origin.token))

    # The audit log

    async def read_audit(self, _request: Request, query: AuditQuery) -> AuditPage:
        if query.after:
            return AuditPage(await self._audit.after(query.after, limit=query.limit), None)
        entries = await self._audit.newest(limit=query.limit, before=query.before)
        return AuditPage(entries, entries[-1].id if len(entries) == query.limit else None)

    async def _record(self, request: Request, action: str, subject: str, **details: object) -> None:
        origin = origin_of(request)
        log.info(action, subject=subject, account=origin.account, address=origin.address)
        await self._audit.record(origin, action, subject, **details)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/api/tokens",
                "Tokens of all accounts, or of one; not the tokens themselves",
                self.list_tokens,
                TokenList,
                query=TokensQuery,
            ),
            Route(
                "POST",
                "/api/tokens",
                "Make a token; its account is made too if there is none",
                self.create_token,
                CreatedToken,
                body=NewToken,
                example={"name": "ci", "account": "web-team", "scopes": ["use"], "expires": "90d"},
            ),
            Route(
                "DELETE",
                "/api/tokens/{account}/{name}",
                "Revoke a token; its sessions and connections continue unless they are to end",
                self.revoke_token,
                RevokedToken,
                query=EndQuery,
            ),
            Route(
                "GET",
                "/api/accounts",
                "Accounts, their limits and what they use now",
                self.list_accounts,
                AccountList,
            ),
            Route(
                "PATCH",
                "/api/accounts/{account}",
                "Set the limits of an account, which is made if there is none",
                self.change_account,
                AccountView,
                body=LimitsChange,
                example={"sessions": 10, "rate": 60},
            ),
            Route(
                "DELETE",
                "/api/accounts/{account}",
                "Delete an account and its tokens; 409 if it has sessions, unless they are to end",
                self.delete_account,
                DeletedAccount,
                query=EndQuery,
            ),
            Route(
                "GET",
                "/api/audit",
                "The audit log, newest entry first",
                self.read_audit,
                AuditPage,
                query=AuditQuery,
            ),
            Route(
                "POST",
                "/api/login",
                "Log in to the dashboard with a token: sets a cookie",
                self.log_in,
                WhoAmI,
                body=LoginRequest,
                example={"token": "rmd_Zt0c3..."},
                scope=None,
            ),
            Route(
                "POST",
                "/api/logout",
                "Log out of the dashboard: ends the login and removes the cookie",
                self.log_out,
                LoggedOut,
                scope=ANY_TOKEN,
            ),
            Route(
                "GET",
                "/api/whoami",
                "The account, scopes and limits of the token that is shown",
                self.who_am_i,
                WhoAmI,
                scope=ANY_TOKEN,
            ),
        ]


def _cookie_name(origin: Origin) -> str:
    return SECURE_LOGIN_COOKIE if origin.scheme == "https" else LOGIN_COOKIE


def _is_auth_on(request: Request) -> bool:
    # Only then does a client show a token, and can it lock itself out.
    return bool(origin_of(request).token)
