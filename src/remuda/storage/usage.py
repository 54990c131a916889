"""What is metered of artifacts: how many an account has, their bytes, and the bytes that were downloaded.

The service is not called `storage`: the keys of storages begin with that word.
"""

from remuda.fleet.services import OBJECTS, OUTGOING, STORAGE, Action, Service, given, taken

_AMOUNTS = ("byteLength", "numberOfObjects")

ARTIFACTS = Service(
    "artifacts",
    [
        # No operations: what is counted of many small writes is what they amount to.
        Action(
            name="addArtifacts",
            operation=None,
            moves={STORAGE: given("byteLength"), OBJECTS: given("numberOfObjects")},
            needs=_AMOUNTS,
        ),
        Action(
            name="removeArtifacts",
            operation=None,
            moves={STORAGE: taken("byteLength"), OBJECTS: taken("numberOfObjects")},
            needs=_AMOUNTS,
        ),
        Action(
            name="download",
            operation=None,
            adds={OUTGOING: given("outgoingBytes")},
            needs=("outgoingBytes",),
            takes=("incomingBytes",),
        ),
    ],
    measures=(OUTGOING,),
    states=(STORAGE, OBJECTS),
    by_herd=True,
)
