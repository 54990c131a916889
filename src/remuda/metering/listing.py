"""ListMetrics and ListRecentMetrics in Utapi's wire format: what is valid, and what is answered. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from remuda.fleet.services import Service
from remuda.metering.model import Level, Precision
from remuda.metering.usage import TimeRange, Usage

LIST, LIST_RECENT = "ListMetrics", "ListRecentMetrics"
ACTIONS = (LIST, LIST_RECENT)
NAME_FIELDS: Mapping[Level, str] = {
    Level.BUCKETS: "bucketName",
    Level.ACCOUNTS: "accountId",
    Level.USERS: "userId",
    Level.SERVICE: "serviceName",
    Level.LOCATION: "location",
}
"""Under which name an answer has the resource. Utapi does not list locations."""
MAX_RESOURCES = 1000

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS

PROBLEMS: Mapping[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied"),
    "AccessForbidden": (403, "Access Forbidden"),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The AWS access key Id you provided does not exist in our records."),
    "InvalidAction": (
        400,
        "The action or operation requested is invalid. Verify that the action is typed correctly.",
    ),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidParameterValue": (
        400,
        "An invalid or out-of-range value was supplied for the input parameter.",
    ),
    "InvalidRequest": (400, "Must use Auth V4 for this request."),
    "NotImplemented": (501, "A header you provided implies functionality that is not implemented."),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the current time is too large.",
    ),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided.",
    ),
    "WrongFormat": (400, "Data entered by the user has a wrong format."),
}
"""Utapi's codes with their status and message."""


class ListingProblem(Exception):
    """A request that is answered with one of Utapi's codes."""

    def __init__(self, code: str, message: str = "") -> None:
        self.code = code
        self.status, usual = PROBLEMS[code]
        self.message = message or usual
        super().__init__(code)

    def body(self) -> bytes:
        return msgspec.json.encode(ListingFailure(self.code, self.message))


class ListingFailure(Struct):
    """One of Utapi's codes, and its message."""

    code: str
    message: str


class ListingRequest(Struct, rename="camel"):
    """The names of resources, in the field of the level that the path names, and the time in milliseconds:
    its end may be left out, and ListRecentMetrics takes none."""

    action: Literal["ListMetrics", "ListRecentMetrics"] | UnsetType = field(default=UNSET, name="Action")
    time_range: Annotated[list[int], Meta(min_length=1, max_length=2)] | UnsetType = UNSET
    buckets: list[str] | UnsetType = UNSET
    accounts: list[str] | UnsetType = UNSET
    users: list[str] | UnsetType = UNSET
    service: list[str] | UnsetType = UNSET
    location: list[str] | UnsetType = UNSET


class ListedUsage(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What was used of a resource. What is stored is told for the begin and the end of the time."""

    time_range: tuple[int, int]
    storage_utilized: tuple[int, int]
    incoming_bytes: int
    outgoing_bytes: int
    number_of_objects: tuple[int, int]
    operations: dict[str, int]
    bucket_name: str | UnsetType = UNSET
    account_id: str | UnsetType = UNSET
    user_id: str | UnsetType = UNSET
    service_name: str | UnsetType = UNSET
    location: str | UnsetType = UNSET


class Listing(Struct, frozen=True):
    """A valid request."""

    level: Level
    resources: tuple[str, ...]
    asked: TimeRange


def read_listing(
    level: Level, *, action: str | None, body: bytes, now_ms: int, precision: Precision, recent: TimeRange
) -> Listing:
    """The listing that is asked for; Problem says what is wrong, in the order in which Utapi looks."""
    try:
        asked: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ListingProblem("InvalidParameterValue") from None
    if not isinstance(asked, dict):
        raise ListingProblem("InvalidParameterValue")
    action = action or asked.get("Action")
    if not action:
        raise ListingProblem("InvalidAction")
    if action not in ACTIONS:
        raise ListingProblem("NotImplemented")
    if level not in asked or (action == LIST and "timeRange" not in asked):
        raise ListingProblem("WrongFormat")
    resources = asked[level]
    if not isinstance(resources, list) or not 0 < len(resources) <= MAX_RESOURCES:
        raise ListingProblem("InvalidParameterValue")
    if not all(isinstance(each, str) for each in resources):
        raise ListingProblem("InvalidParameterValue")
    time_range = recent if action == LIST_RECENT else _read_range(asked["timeRange"], now_ms, precision)
    return Listing(level, tuple(resources), time_range)


def _read_range(given: Any, now_ms: int, precision: Precision) -> TimeRange:
    step = precision * _MINUTE_MS
    is_valid = isinstance(given, list) and 1 <= len(given) <= 2 and all(map(_is_whole, given))
    if is_valid:
        start, end = int(given[0]), int(given[1]) if len(given) > 1 else now_ms
        is_aligned = start % step == 0 and (len(given) == 1 or (end + 1) % step == 0)
        if is_aligned and 0 <= start <= end:
            return TimeRange(start, end)
    raise ListingProblem("InvalidParameterValue", _range_rule(step))


def _is_whole(number: Any) -> bool:
    # To Utapi, which is JavaScript, 9e5 and 900000.0 are as good as 900000, and some languages write them.
    return type(number) is int or (isinstance(number, float) and number.is_integer())


def _range_rule(step: int) -> str:
    starts = range(0, _HOUR_MS, step)
    first = ", ".join(f"{each // _MINUTE_MS:02}:00:000" for each in starts)
    last = ", ".join(f"{(each + step) // _MINUTE_MS - 1:02}:59:999" for each in starts)
    return (
        "Timestamps must be one of the following intervals for any past day/hour (mm:ss:SS) - "
        f"start must be one of [{first}], end must be one of [{last}]. Start must not be greater than end."
    )


def answer(listing: Listing, usages: Sequence[Usage], service: Service) -> bytes:
    """The body of the answer, its fields in Utapi's order."""
    name_field, asked = NAME_FIELDS[listing.level], listing.asked
    return msgspec.json.encode(
        [
            {
                "timeRange": [asked.start, asked.end],
                "storageUtilized": usage.states["storageUtilized"],
                "incomingBytes": usage.counts["incomingBytes"],
                "outgoingBytes": usage.counts["outgoingBytes"],
                "numberOfObjects": usage.states["numberOfObjects"],
                "operations": {
                    f"{service.name}:{operation}": usage.counts[operation] for operation in service.operations
                },
                name_field: usage.resource,
            }
            for usage in usages
        ]
    )
