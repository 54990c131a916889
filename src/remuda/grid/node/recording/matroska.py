"""Pictures as a video stream that ffmpeg reads as it comes: JPEGs in Matroska, each with its time. Pure.

Bare JPEGs on a pipe would do, too, but without a time: ffmpeg would take the moment at which it got round to
reading them, which on a busy machine is not when they were made.
"""

MILLISECOND = 1_000_000
"""Matroska counts in nanoseconds."""

# RFC 9559, the few elements that a stream cannot do without.
_EBML, _DOC_TYPE, _DOC_VERSION, _DOC_READ_VERSION = 0x1A45DFA3, 0x4282, 0x4287, 0x4285
_SEGMENT, _INFO, _TIMESTAMP_SCALE, _MUXER, _WRITER = 0x18538067, 0x1549A966, 0x2AD7B1, 0x4D80, 0x5741
_TRACKS, _TRACK, _NUMBER, _UID, _KIND, _CODEC = 0x1654AE6B, 0xAE, 0xD7, 0x73C5, 0x83, 0x86
_VIDEO, _WIDTH, _HEIGHT = 0xE0, 0xB0, 0xBA
_CLUSTER, _TIMESTAMP, _SIMPLE_BLOCK = 0x1F43B675, 0xE7, 0xA3

_UNKNOWN_SIZE = b"\x01" + b"\xff" * 7
_IS_VIDEO = 1
_TINY = 16
# Track 1, at the cluster's own time, a key frame.
_BLOCK_HEAD = b"\x81\x00\x00\x80"


def stream_head() -> bytes:
    """What comes before the first picture."""
    # Each picture says its own size. A stream whose pictures are lower than it says, ffmpeg takes for one of
    # half pictures, every other line each, and stretches them; so it is said to be tiny.
    video = _element(_VIDEO, _number(_WIDTH, _TINY) + _number(_HEIGHT, _TINY))
    track = _number(_NUMBER, 1) + _number(_UID, 1) + _number(_KIND, _IS_VIDEO)
    about = _element(_MUXER, b"remuda") + _element(_WRITER, b"remuda")
    return b"".join(
        (
            _element(
                _EBML,
                _element(_DOC_TYPE, b"matroska") + _number(_DOC_VERSION, 4) + _number(_DOC_READ_VERSION, 2),
            ),
            _id(_SEGMENT) + _UNKNOWN_SIZE,
            _element(_INFO, _number(_TIMESTAMP_SCALE, MILLISECOND) + about),
            _element(_TRACKS, _element(_TRACK, track + _element(_CODEC, b"V_MJPEG") + video)),
        )
    )


def stream_picture(jpeg: bytes, *, at: float) -> bytes:
    """A picture that is shown from then on, in seconds since the beginning."""
    block = _element(_SIMPLE_BLOCK, _BLOCK_HEAD + jpeg)
    return _element(_CLUSTER, _number(_TIMESTAMP, round(at * 1000)) + block)


def _element(name: int, body: bytes) -> bytes:
    # A size of eight bytes always, the first of which says so.
    return _id(name) + (len(body) | 1 << 56).to_bytes(8, "big") + body


def _number(name: int, value: int) -> bytes:
    return _element(name, value.to_bytes(8, "big"))


def _id(name: int) -> bytes:
    return name.to_bytes((name.bit_length() + 7) // 8, "big")
