"""The service `s3`: Utapi's 46 actions, and what each of them changes.

In the order of the 45 operations in an answer of ListMetrics.
"""

from remuda.fleet.services import (
    INCOMING,
    OBJECTS,
    OUTGOING,
    STORAGE,
    Action,
    Params,
    Service,
    given,
    taken,
)

DELETE_BUCKET = "deleteBucket"


def _growth(params: Params) -> int:
    """New bytes, less those of what is overwritten."""
    return int(params["newByteLength"]) - (params["oldByteLength"] or 0)


def _is_new(params: Params) -> int:
    """1 for an object that was not there, 0 for one that is overwritten."""
    return 1 if params["oldByteLength"] is None else 0


# A multipart upload's bytes were counted with its parts. Utapi lacks a check here, and a missing length fails
# for ever in its replay; here it means the same as null.
def _completed(params: Params) -> int | None:
    return 1 if params.get("oldByteLength") is None else None


def _overwritten(params: Params) -> int | None:
    old = params.get("oldByteLength")
    return None if old is None else -old


# A delete marker is one more version, unless it replaces an object of which the length is given.
def _marked(params: Params) -> int:
    return 1 if params.get("byteLength") is None else 0


def _unmarked(params: Params) -> int | None:
    length = params.get("byteLength")
    return None if length is None else -length


_PUT = {"moves": {STORAGE: _growth, OBJECTS: _is_new}, "needs": ("newByteLength", "oldByteLength")}
_PART = {
    "adds": {INCOMING: given("newByteLength")},
    "moves": {STORAGE: _growth},
    "needs": ("newByteLength", "oldByteLength"),
}
_DELETE = {
    "moves": {STORAGE: taken("byteLength"), OBJECTS: taken("numberOfObjects")},
    "needs": ("byteLength", "numberOfObjects"),
}
_MARKER = {"moves": {OBJECTS: _marked, STORAGE: _unmarked}, "takes": ("byteLength",)}


def _read(name: str, operation: str = "") -> Action:
    return Action(name=name, operation=operation)


def _write(name: str, **more: object) -> Action:
    return Action(name=name, publishes=True, **more)  # type: ignore[arg-type]


S3 = Service(
    "s3",
    [
        _write(DELETE_BUCKET),
        _write("deleteBucketCors"),
        _write("deleteBucketWebsite"),
        _write("deleteObjectTagging"),
        _read("listBucket"),
        _read("getBucketAcl"),
        _read("getBucketCors"),
        _read("getBucketWebsite"),
        _read("getBucketLocation"),
        _write("createBucket"),
        _write("putBucketAcl"),
        _write("putBucketCors"),
        _write("putBucketWebsite"),
        _write("putObject", adds={INCOMING: given("newByteLength")}, **_PUT),
        _write("copyObject", **_PUT),
        _write("uploadPart", **_PART),
        _write("uploadPartCopy", **_PART),
        _read("listMultipartUploads", "ListBucketMultipartUploads"),
        _read("listMultipartUploadParts"),
        _write("initiateMultipartUpload"),
        _write(
            "completeMultipartUpload",
            moves={OBJECTS: _completed, STORAGE: _overwritten},
            takes=("oldByteLength",),
        ),
        _write("abortMultipartUpload", moves={STORAGE: taken("byteLength")}, needs=("byteLength",)),
        _write("deleteObject", **_DELETE),
        _write("putDeleteMarkerObject", operation="DeleteObject", **_MARKER),
        _write("multiObjectDelete", **_DELETE),
        Action(
            name="getObject",
            adds={OUTGOING: given("newByteLength")},
            needs=("newByteLength",),
        ),
        _read("getObjectAcl"),
        _read("getObjectTagging"),
        _write("putObjectAcl"),
        _write("putObjectTagging"),
        _read("headBucket"),
        _read("headObject"),
        _write("putBucketVersioning"),
        _read("getBucketVersioning"),
        _write("putBucketReplication"),
        _read("getBucketReplication"),
        _write("deleteBucketReplication"),
        _write("putBucketObjectLock"),
        # A read. Utapi's table has it among the writes, so it publishes a change; here it does not.
        _read("getBucketObjectLock"),
        _write("putObjectRetention"),
        _read("getObjectRetention"),
        _write("putObjectLegalHold"),
        _read("getObjectLegalHold"),
        _write("replicateObject", adds={INCOMING: given("newByteLength")}, **_PUT),
        _write("replicateTags"),
        _write("replicateDelete", **_MARKER),
    ],
    measures=(INCOMING, OUTGOING),
    states=(STORAGE, OBJECTS),
)
