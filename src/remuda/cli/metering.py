"""`remuda metering`: finds and corrects counters that disagree, says whose buckets are, and shows events that
cannot be counted."""

from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.text import Text

from remuda.base.errors import InvalidArgument
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json, table, table_console

TIMEOUT = 60.0
PLACE = ("service", "level", "resource", "metric")
EXAMPLE = "s3/buckets/photos/storageUtilized"
OWNED = PLACE[:3]
OWNED_EXAMPLE = "s3/buckets/photos"


def check_counters(herd: HerdAddress, *, as_json: bool = False) -> int:
    """Prints the counters that disagree with their states; the exit status, 1 if there are any."""
    answer = ask_herd(herd, "/api/metering/drift", timeout=TIMEOUT)
    drift = answer["drift"]
    if as_json:
        print_json(answer)
        return 1 if drift else 0
    if not drift:
        table_console().print(Text("counters and states agree", style="green"))
        return 0
    shown = table("service", "level", "resource", "state", "counter", "recorded")
    for each in drift:
        recorded = "-" if each["state"] is None else str(each["state"])
        shown.add_row(*_place(each), str(each["counter"]), recorded)
    table_console().print(shown)
    return 1


def reconcile(herd: HerdAddress, place: str | None, value: int | None) -> None:
    """Corrects a state such as s3/buckets/foo/storageUtilized, or everything that disagrees."""
    body: dict[str, Any] = {}
    if place is not None:
        parts = place.split("/")
        if len(parts) != len(PLACE):
            raise InvalidArgument(f"{place!r} is not a state; write it as {EXAMPLE}")
        body = dict(zip(PLACE, parts, strict=True)) | {"value": value}
    elif value is not None:
        raise InvalidArgument(f"--value needs a state, such as {EXAMPLE}")
    answer = ask_herd(herd, "/api/metering/reconcile", method="POST", body=body, timeout=TIMEOUT)
    for each in answer["corrections"]:
        recorded = "nothing" if each["state"] is None else each["state"]
        was = f"the counter was {each['counter']}, the state {recorded}"
        print(f"{'/'.join(_place(each))}: {each['value']} ({was})")
    if not answer["corrections"]:
        print("nothing to correct")


def show_corrections(herd: HerdAddress, *, as_json: bool = False) -> None:
    """Prints what was corrected, newest first."""
    answer = ask_herd(herd, "/api/metering/corrections")
    if as_json:
        print_json(answer)
        return
    shown = table("when", "by", "service", "level", "resource", "state", "counter", "recorded", "now")
    for each in answer["corrections"]:
        by = f"{each['account']}/{each['token']}" if each["token"] else "-"
        recorded = "-" if each["state"] is None else str(each["state"])
        shown.add_row(each["at"][:19], by, *_place(each), str(each["counter"]), recorded, str(each["value"]))
    table_console().print(shown)


def show_owners(herd: HerdAddress, place: str | None, *, as_json: bool = False) -> None:
    """Prints whose a bucket or user such as s3/buckets/photos is, or all that operators have assigned."""
    query = "" if place is None else f"?{urlencode(_read_owned(place))}"
    answer = ask_herd(herd, f"/api/metering/owners{query}")
    if as_json:
        print_json(answer)
        return
    owners = answer["owners"]
    if not owners:
        print("nothing is assigned: buckets and users belong to the account that uses them first")
        return
    shown = table("service", "level", "resource", "account", "assigned")
    for each in owners:
        assigned = "yes" if each["assigned"] else "no"
        shown.add_row(each["service"], each["level"], each["resource"], each["account"] or "-", assigned)
    table_console().print(shown)


def assign_owner(herd: HerdAddress, place: str, account: str) -> None:
    """Gives a bucket or user to an account."""
    body = _read_owned(place) | {"account": account}
    done = ask_herd(herd, "/api/metering/owners", method="PUT", body=body)
    print(f"{place} belongs to {account} (before: {done['before'] or 'no account'})")


def release_owner(herd: HerdAddress, place: str) -> None:
    """Has a bucket or user belong to whatever account uses it next."""
    done = ask_herd(herd, f"/api/metering/owners?{urlencode(_read_owned(place))}", method="DELETE")
    print(f"{place} belongs to the account that uses it next (before: {done['before'] or 'no account'})")


def _read_owned(place: str) -> dict[str, str]:
    parts = place.split("/")
    if len(parts) != len(OWNED):
        raise InvalidArgument(f"{place!r} is not a bucket or user; write it as {OWNED_EXAMPLE}")
    return dict(zip(OWNED, parts, strict=True))


def show_poison(herd: HerdAddress, *, drop: bool, as_json: bool = False) -> None:
    """Prints the events that cannot be counted, as JSON a line, and drops them if asked to."""
    method = "DELETE" if drop else "GET"
    answer = ask_herd(herd, "/api/metering/poison", method=method)
    if as_json:
        print_json(answer)
        return
    console = Console(soft_wrap=True, highlight=False)
    for each in answer["poison"]:
        console.print(
            Text.assemble((f"{each['at']}  {each['source']}: {each['reason']}  ", "dim"), each["element"])
        )


def _place(each: Any) -> tuple[str, str, str, str]:
    return each["service"], each["level"], each["resource"], each["metric"]
