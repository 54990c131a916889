"""What clients say of their video, in the words of several grids."""

from typing import Any

import pytest

from remuda.base.errors import InvalidArgument
from remuda.grid.options import cookie_message, read_options
from remuda.grid.video import Size, Video, VideoWish, read_video


def settled(wish: VideoWish, *, record: bool) -> Video | None:
    """What a herd makes of the wish that records or does not."""
    return wish.settle(record=record, size="1280x720", rate=10)


@pytest.mark.parametrize(
    ("capabilities", "record"),
    [
        ({}, None),
        ({"se:recordVideo": True}, True),
        ({"se:recordVideo": "true"}, True),
        ({"se:recordVideo": "false"}, False),
        ({"selenoid:options": {"enableVideo": True}}, True),
        ({"moon:options": {"enableVideo": False}}, False),
        ({"webgrid:options": {"disableRecording": True}}, False),
        ({"remuda:options": {"recordVideo": True}}, True),
        ({"se:recordVideo": True, "remuda:options": {"recordVideo": False}}, False),
    ],
)
def test_every_grids_word_for_recording_is_understood(
    capabilities: dict[str, Any], record: bool | None
) -> None:
    assert read_video(capabilities).record is record


def test_a_client_overrules_the_herd_either_way() -> None:
    video = Video(Size(1280, 720), 10, "video.mp4")

    assert settled(VideoWish(record=False), record=True) is None
    assert settled(VideoWish(record=True), record=False) == video
    assert settled(VideoWish(), record=False) is None
    assert settled(VideoWish(), record=True) == video


def test_selenoids_options_decide_size_rate_and_name() -> None:
    options = {
        "enableVideo": True,
        "screenResolution": "1920x1080x24",
        "videoScreenSize": "1025x769",
        "videoFrameRate": 24,
        "videoName": "my-test.mp4",
    }

    wish = read_video({"selenoid:options": options})

    assert wish == VideoWish(True, Size(1024, 768), 24, "my-test.mp4")


@pytest.mark.parametrize(
    ("resolution", "size"),
    [
        ("1920x1080", Size(1920, 1080)),
        ("1280x1024x24", Size(1280, 1024)),
        ("9999x9999", None),
        ("big", None),
        (7, None),
    ],
)
def test_the_screens_resolution_is_the_videos_where_it_can_be(resolution: Any, size: Size | None) -> None:
    assert read_video({"se:screenResolution": resolution}).size == size


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("round-up", "round-up.mp4"),
        ("a b/c%d.mp4", "a_b_c_d.mp4"),
        ("../../etc/passwd", "_.._.._etc_passwd.mp4"),
        ("-vf", "_-vf.mp4"),
        (".mp4", "_.mp4"),
        ("x" * 300, "x" * 120 + ".mp4"),
    ],
)
def test_a_videos_name_is_one_that_harms_nobody(name: str, file: str) -> None:
    assert read_video({"se:videoName": name}).file == file


@pytest.mark.parametrize(
    "options",
    [
        {"recordVideo": "yes"},
        {"recordVideo": 1},
        {"videoScreenSize": "63x64"},
        {"videoScreenSize": "3841x2160"},
        {"videoScreenSize": "1280 x 720"},
        {"videoScreenSize": ["1280x720"]},
        {"videoFrameRate": 0},
        {"videoFrameRate": 31},
        {"videoFrameRate": True},
        {"videoName": ""},
        {"videoName": 5},
    ],
)
def test_what_no_video_can_have_is_refused_by_name(options: dict[str, Any]) -> None:
    (word,) = options

    with pytest.raises(InvalidArgument, match=f"'{word}' in remuda:options"):
        read_options({"remuda:options": options})


@pytest.mark.parametrize("name", ["webgrid:message", "remuda:message", "zaleniumMessage"])
def test_a_cookie_may_be_a_message(name: str) -> None:
    assert cookie_message({"cookie": {"name": name, "value": "step one"}}) == "step one"
    with pytest.raises(InvalidArgument, match=name):
        cookie_message({"cookie": {"name": name, "value": 1}})


@pytest.mark.parametrize("body", [{}, [], {"cookie": 1}, {"cookie": {"name": "message", "value": "x"}}])
def test_every_other_cookie_is_none(body: Any) -> None:
    assert cookie_message(body) is None
