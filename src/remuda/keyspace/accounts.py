"""The keys of accounts/: who may use the herd, and how much of it."""

from remuda.keyspace import rules
from remuda.keyspace.key import (
    HashName,
    Key,
    ListName,
    SetName,
    StreamName,
    StringName,
    ZSetName,
    expires,
    until,
)

DIGEST = r"[0-9a-f]{64}"

_DELETED = until("the account is deleted")

ACCOUNTS = Key(
    "remuda:accounts",
    SetName,
    meaning="Every account that an operator has made or that has a token",
    writer="accounts/accounts",
    lifetime=_DELETED,
    fields={"member": "name of the account"},
)
ACCOUNT = Key(
    "remuda:account:{account}",
    HashName,
    meaning="What an account may use",
    writer="accounts/accounts",
    lifetime=_DELETED,
    fields={
        "createdAt": "RFC 3339, when it was made",
        "sessions": "sessions and connections that it may have at a time; missing: any number",
        "rate": "sessions and connections that it may start in a minute; missing: any number",
    },
    parts={"account": rules.ACCOUNT},
)
TOKEN = Key(
    "remuda:token:{digest}",
    HashName,
    meaning="A token, found by its SHA-256; the token itself is stored nowhere",
    writer="accounts/tokens",
    lifetime=until("it is revoked, or a week after it has expired"),
    fields={
        "name": "its name, unique in its account",
        "account": "the account that it belongs to",
        "scopes": "what it is good for, separated by spaces: `use`, `archive`, `usage`, `admin`",
        "createdAt": "RFC 3339, when it was made",
        "expiresAt": "RFC 3339, until when it is good; missing: until it is revoked",
        "usedAt": "RFC 3339, about when it was last used; missing: never",
    },
    parts={"digest": DIGEST},
)
ADMINS = Key(
    "remuda:admins",
    SetName,
    meaning="The tokens of the scope `admin` that do not expire; the last one cannot be revoked",
    writer="accounts/tokens, accounts/accounts",
    lifetime=until("the herd's data are deleted"),
    fields={"member": "SHA-256 of the token, in hexadecimal digits"},
)
EXPIRIES = Key(
    "remuda:expiries",
    ZSetName,
    meaning="The tokens that expire, so that those to forget are found without a look at all",
    writer="accounts/tokens, accounts/accounts",
    lifetime=until("the last of them is forgotten"),
    fields={"member": "SHA-256 of the token, scored by the Unix second at which it expires"},
)
TOKENS = Key(
    "remuda:tokens:{account}",
    HashName,
    meaning="The tokens of an account, by name",
    writer="accounts/tokens",
    lifetime=until("its last token is revoked"),
    fields={"<name>": "SHA-256 of the token, in hexadecimal digits"},
    parts={"account": rules.ACCOUNT},
)
LOGIN = Key(
    "remuda:login:{digest}",
    HashName,
    meaning="A browser that is logged in to the dashboard, found by the SHA-256 of its cookie",
    writer="accounts/logins",
    # As long as the option login_lifetime may be.
    lifetime=expires(30 * 86400, ends="deleted on logout"),
    fields={"token": "SHA-256 of the token that it logged in with"},
    parts={"digest": DIGEST},
)
ACCESS_VERSION = Key(
    "remuda:access",
    StringName,
    meaning="Counts the changes of tokens, accounts and logins: processes that remember any look again",
    writer="accounts/tokens, accounts/accounts, accounts/logins",
    lifetime=until("an operator deletes it"),
    fields={"value": "a number"},
)
AUDIT = Key(
    "remuda:audit",
    StreamName,
    meaning="The audit log: which token created, ended, read or changed what",
    writer="accounts/audit",
    lifetime=until("an operator deletes it; its entries are removed by those that follow"),
    fields={
        "at": "RFC 3339",
        "account": "account of the token that was shown",
        "token": "name of the token; empty where none is needed",
        "address": "address of the client",
        "action": "what was done, such as `token.create`",
        "subject": "what it was done to: an id or a name",
        "details": "more about it, as JSON",
    },
)
AUDIT_ENTRIES = Key(
    "remuda:audit:entries:{rank}:{account}",
    ListName,
    meaning="The entries of the audit log that the clients of an account have caused, `admins` and other "
    "`clients` apart, so that only they push them out: 10,000 and 1,000 stay",
    writer="accounts/audit",
    lifetime=until("an operator deletes it, with the audit log"),
    fields={"member": "id of the entry, the oldest first"},
    parts={"rank": "admins|clients", "account": rules.ACCOUNT},
)
AUDIT_REPEATED = Key(
    "remuda:audit:repeated:{digest}",
    HashName,
    meaning="A login or logout in the audit log, found by the SHA-256 of who did it from where: the next one "
    "takes its place",
    writer="accounts/audit",
    lifetime=expires(3600, ends="expires an hour after the first"),
    fields={"entry": "id of the entry", "times": "how often that was"},
    parts={"digest": DIGEST},
)
METRICS_ACCESS = Key(
    "remuda:metrics:access",
    HashName,
    meaning="Requests that were refused for lack of a token or right, and those over an account's limit",
    writer="gateway, fleet/uses, accounts/http",
    lifetime=until("an operator deletes it"),
    fields={"<reason>": "how many; `sessions_limit` and `rate_limit` are those of accounts"},
)
