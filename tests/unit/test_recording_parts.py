"""The parts of a recording that need neither a browser nor ffmpeg: playlists, subtitles, and the stream."""

import os
import resource
import signal
from pathlib import Path

import pytest

from remuda.grid.node.recording import hls
from remuda.grid.node.recording.encoder import FROM_PIPE, command, from_screen
from remuda.grid.node.recording.matroska import stream_head, stream_picture
from remuda.grid.node.recording.subtitles import Subtitles, make_cue, write_cue
from remuda.grid.video import Size, Video

VIDEO = Video(Size(1280, 720), 10)


def test_the_master_playlist_names_pictures_and_messages() -> None:
    lines = hls.master_playlist(VIDEO).splitlines()

    assert lines[0] == "#EXTM3U"
    assert lines[-1] == "stream.m3u8"
    assert 'CODECS="avc1.42C028",RESOLUTION=1280x720,FRAME-RATE=10.000,SUBTITLES="messages"' in lines[-2]
    assert 'TYPE=SUBTITLES,GROUP-ID="messages"' in lines[3]
    assert 'URI="messages.m3u8"' in lines[3]


@pytest.mark.parametrize(
    ("size", "level", "codec"),
    [
        (Size(64, 64), "4.0", "avc1.42C028"),
        (Size(1920, 1080), "4.0", "avc1.42C028"),
        (Size(2560, 1440), "5.1", "avc1.42C033"),
        (Size(3840, 2160), "5.1", "avc1.42C033"),
    ],
)
def test_the_codec_says_what_the_size_needs(size: Size, level: str, codec: str) -> None:
    assert (hls.level_of(Video(size, 30)), hls.codec_of(Video(size, 30))) == (level, codec)


def test_a_playlist_is_ended_once(tmp_path: Path) -> None:
    path = tmp_path / "stream.m3u8"
    path.write_text(hls.media_playlist([(4.0, "video.mp4")], target=4, is_over=False))
    assert hls.END not in path.read_text()

    assert hls.end_playlists(tmp_path)
    ended = path.read_text()
    assert not hls.end_playlists(tmp_path)

    assert ended.endswith("#EXTINF:4.000,\nvideo.mp4\n#EXT-X-ENDLIST\n")
    assert path.read_text() == ended
    assert [each.name for each in tmp_path.iterdir()] == ["stream.m3u8"]


def test_a_playlist_of_playlists_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "video.m3u8").write_text(hls.master_playlist(VIDEO))

    assert not hls.end_playlists(tmp_path)

    assert (tmp_path / "video.m3u8").read_text() == hls.master_playlist(VIDEO)


def test_no_link_that_a_browser_has_laid_is_followed(tmp_path: Path) -> None:
    secret, there = tmp_path / "secret", tmp_path / "recording"
    secret.write_text("secret")
    there.mkdir()
    (there / "linked.m3u8").symlink_to(secret)
    (there / "stream.m3u8").write_text("#EXTM3U\n")
    (there / ".stream.m3u8.draft").symlink_to(secret)

    assert hls.end_playlists(there)

    assert secret.read_text() == "secret"
    assert (there / "linked.m3u8").is_symlink()
    assert (there / "stream.m3u8").read_text() == f"#EXTM3U\n{hls.END}\n"


def test_what_is_no_playlist_is_not_ended(tmp_path: Path) -> None:
    (tmp_path / "directory.m3u8").mkdir()
    os.mkfifo(tmp_path / "pipe.m3u8")
    with (tmp_path / "huge.m3u8").open("wb") as huge:
        huge.truncate(1 << 40)

    assert not hls.end_playlists(tmp_path)


def test_a_playlist_of_any_bytes_is_ended(tmp_path: Path) -> None:
    (tmp_path / "stream.m3u8").write_bytes(b"#EXTM3U\n\xff\xfe\n")

    assert hls.end_playlists(tmp_path)

    assert (tmp_path / "stream.m3u8").read_bytes() == b"#EXTM3U\n\xff\xfe\n" + f"{hls.END}\n".encode()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Log in", "Log in"),
        ("<b>a</b> & --> b", "&lt;b&gt;a&lt;/b&gt; &amp; --&gt; b"),
        ("one\n\n  two\t x \r\n", "one\ntwo x"),
        ("x" * 600, "x" * 500),
        ("Grüße 🐎", "Grüße 🐎"),
    ],
)
def test_a_message_is_shown_as_it_was_meant(said: str, shown: str) -> None:
    assert write_cue(make_cue(said, at=3725.5)) == f"\n01:02:05.500 --> 01:02:10.500\n{shown}\n"


def test_messages_are_not_written_through_a_link(tmp_path: Path) -> None:
    outside, recording = tmp_path / "outside", tmp_path / "recording"
    outside.write_text("kept")
    recording.mkdir()
    subtitles = Subtitles(recording)
    names = ("messages.vtt", "silence.vtt", "messages-00000.vtt")
    for name in names:
        (recording / name).symlink_to(outside)

    subtitles.begin()
    subtitles.say("one", at=1.0)
    subtitles.publish(10.0)
    (recording / "messages.vtt").unlink()
    (recording / "messages.vtt").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        subtitles.say("two", at=11.0)

    assert outside.read_text() == "kept"
    assert not any((recording / name).is_symlink() for name in names[1:])


def test_messages_are_in_the_parts_in_which_they_are_shown(tmp_path: Path) -> None:
    subtitles = Subtitles(tmp_path)
    subtitles.begin()
    subtitles.say("one", at=1.0)
    subtitles.say("two", at=8.0)
    subtitles.say(" \n ", at=9.0)

    subtitles.publish(9.9)
    assert "#EXTINF" not in (tmp_path / "messages.m3u8").read_text()
    subtitles.publish(35.0)
    subtitles.say("three", at=36.0)
    live = (tmp_path / "messages.m3u8").read_text()
    subtitles.close(42.5)

    ended = (tmp_path / "messages.m3u8").read_text()
    assert ended.startswith(live)
    assert [line for line in ended.splitlines() if not line.startswith("#EXT-X-")] == [
        "#EXTM3U",
        *("#EXTINF:10.000,", "messages-00000.vtt"),
        *("#EXTINF:10.000,", "messages-00001.vtt"),
        *("#EXTINF:10.000,", "silence.vtt"),
        *("#EXTINF:10.000,", "messages-00003.vtt"),
        *("#EXTINF:2.500,", "messages-00004.vtt"),
    ]
    assert ended.endswith(f"{hls.END}\n")
    first, second = ((tmp_path / f"messages-0000{number}.vtt").read_text() for number in (0, 1))
    assert first.splitlines()[0] == "WEBVTT"
    assert [text in first for text in ("one", "two", "three")] == [True, True, False]
    assert [text in second for text in ("one", "two", "three")] == [False, True, False]
    whole = (tmp_path / "messages.vtt").read_text()
    assert whole.startswith("WEBVTT\n\n00:00:01.000 --> 00:00:06.000\none\n")
    assert whole.count("-->") == 3


def test_a_picture_carries_its_time_in_milliseconds() -> None:
    picture = stream_picture(b"jpeg", at=1.5)

    assert stream_head().startswith(b"\x1a\x45\xdf\xa3")
    assert picture.startswith(b"\x1f\x43\xb6\x75")
    assert (1500).to_bytes(8, "big") in picture
    assert picture.endswith(b"\x81\x00\x00\x80jpeg")


def test_ffmpeg_is_told_all_that_a_client_decides() -> None:
    video = Video(Size(800, 600), 24, "mine.mp4")

    piped = command("ffmpeg", FROM_PIPE, video)
    grabbed = command("ffmpeg", from_screen(":7", video, size="1920x1080"), video)

    assert piped[piped.index("-hls_segment_filename") + 1] == "mine.mp4"
    assert "scale=800:600" in piped[piped.index("-vf") + 1]
    assert piped[piped.index("-r") + 1] == "24"
    assert grabbed[grabbed.index("-video_size") + 1] == "1920x1080"
    assert grabbed[grabbed.index("-i") + 1] == ":7"


def test_a_full_disk_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "messages.m3u8"
    hls.replace_file(path, "old")

    # A file that grows beyond what is allowed fails in the middle, as on a full disk.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            hls.replace_file(path, "new" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
