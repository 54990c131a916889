"""What each action changes, and which parameters are refused."""

from typing import Any

import pytest

from golden_usage import GOLDEN
from remuda.base.errors import Broken, InvalidArgument
from remuda.fleet.services import OBJECTS, STORAGE, Action, Service, given
from remuda.metering.model import Counting, Level, Services, find_change, slot_of
from remuda.metering.s3 import S3

PUT = {"bucket": "b", "newByteLength": 1024, "oldByteLength": None}


def change(action: str, **params: Any) -> Any:
    return find_change(S3, action, params, Counting())


def test_s3_has_utapis_actions_and_answers_with_its_operations_in_order() -> None:
    recorded = [each["action"] for each in GOLDEN["everyAction"] if each["action"] != "unsupportedMetric"]
    operations = [name.removeprefix("s3:") for name in GOLDEN["listMetrics"][0]["response"]["operations"]]

    assert sorted(S3.by_name) == sorted(recorded)
    assert len(S3.by_name) == 46
    assert list(S3.operations) == operations


@pytest.mark.parametrize(
    ("action", "params", "field"),
    [
        ("unsupportedMetric", {}, "action is 'unsupportedMetric'"),
        ("putObject", {"newByteLength": 1}, "params.oldByteLength is missing"),
        ("putObject", {"newByteLength": None, "oldByteLength": None}, "params.newByteLength is None"),
        ("putObject", {"newByteLength": -1, "oldByteLength": None}, "params.newByteLength is -1"),
        ("putObject", {"newByteLength": 1.5, "oldByteLength": None}, "params.newByteLength is 1.5"),
        ("putObject", {"newByteLength": True, "oldByteLength": None}, "params.newByteLength is True"),
        ("putObject", {"newByteLength": 2**46, "oldByteLength": None}, "params.newByteLength is 7036"),
        ("getObject", {}, "params.newByteLength is missing"),
        ("deleteObject", {"byteLength": 1}, "params.numberOfObjects is missing"),
        ("deleteObject", {"byteLength": None, "numberOfObjects": 1}, "params.byteLength is None"),
        ("replicateDelete", {"byteLength": "1"}, "params.byteLength is '1'"),
        ("createBucket", {"bucket": 42}, "params.bucket is 42"),
        ("createBucket", {"bucket": "a:b"}, "params.bucket is 'a:b'"),
        ("createBucket", {"userId": "x" * 256}, "params.userId is 'xxx"),
        ("createBucket", {"keys": "a"}, "params.keys must be a list"),
        ("createBucket", {"keys": [1]}, "params.keys must have texts"),
    ],
)
def test_a_wrong_event_is_refused_with_the_name_of_the_field(
    action: str, params: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        change(action, **params)

    assert refusal.value.message.startswith(field)


def test_an_overwritten_object_changes_the_storage_and_not_the_number_of_objects() -> None:
    assert dict(change("putObject", newByteLength=512, oldByteLength=1024).moves) == {
        STORAGE: -512,
        OBJECTS: 0,
    }
    assert dict(change("putObject", newByteLength=512, oldByteLength=None).moves) == {
        STORAGE: 512,
        OBJECTS: 1,
    }


def test_a_missing_old_length_of_a_multipart_upload_means_none() -> None:
    assert change("completeMultipartUpload") == change("completeMultipartUpload", oldByteLength=None)


def test_levels_and_operation_counters_can_be_switched_off() -> None:
    counting = Counting(levels=frozenset({Level.BUCKETS}), operations=frozenset({"getobject"}))

    found = find_change(S3, "putObject", {**PUT, "accountId": "a"}, counting)

    assert found.targets == (("buckets", "b"),)
    assert found.counts == (("incomingBytes", 1024),)


def test_a_service_declares_its_measures() -> None:
    use = Action(name="useBrowser", adds={"browserSeconds": given("seconds")}, needs=("seconds",))
    grid = Service("grid", [Action(name="createSession"), use], measures=("browserSeconds",))

    found = find_change(grid, "useBrowser", {"accountId": "a", "seconds": 7}, Counting())

    assert found.counts == (("browserSeconds", 7), ("UseBrowser", 1))
    assert found.targets == (("accounts", "a"), ("service", "grid"))
    with pytest.raises(Broken):
        Service("grid", [use])
    with pytest.raises(InvalidArgument):
        Service("session", [use], measures=("browserSeconds",))
    with pytest.raises(InvalidArgument, match="the services are s3, grid"):
        Services([S3, grid]).find("tape")


@pytest.mark.parametrize(
    ("time", "slot"), [("06:15:01", 1483280100000), ("06:29:59", 1483280100000), ("06:31:00", 1483281000000)]
)
def test_a_time_slot_begins_every_fifteen_minutes(time: str, slot: int) -> None:
    hours, minutes, seconds = map(int, time.split(":"))
    # The document's examples are in PST: 2017-01-01 00:00 is 08:00 UTC.
    moment = 1483257600 + hours * 3600 + minutes * 60 + seconds

    assert slot_of(moment * 1000, 15) == slot
    assert slot_of(moment * 1000, 1) == moment // 60 * 60_000
