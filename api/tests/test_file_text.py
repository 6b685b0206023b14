"""Text that is partly in files."""

import os
import pickle
from pathlib import Path

import pytest
from outbox_api import ConfigError, FileText, present_text
from outbox_api.support.file_text import MAX_BYTES

SECRET = "s3cr=t 'ö'\\"


def test_the_present_content_is_read_each_time(tmp_path: Path):
    file = tmp_path / "password"
    text = FileText(("user=me password=", file, " x"))
    for content, expected in (
        ("one\n", "one"),
        ("two", "two"),
        ("3\r\n", "3"),
        ("four\n\n", "four\n"),
        ("", ""),
    ):
        file.write_bytes(content.encode())
        assert text.read() == present_text(text) == f"user=me password={expected} x"
    assert present_text("plain") == "plain"


def test_it_travels_as_the_path_and_shows_nothing_else(tmp_path: Path):
    file = tmp_path / "password"
    file.write_text(SECRET)
    text = FileText((SECRET, file))
    sent = pickle.dumps(text)
    assert pickle.loads(sent) == text
    assert hash(pickle.loads(sent)) == hash(text)
    assert repr(text) == str(text) == f"FileText('{file}')"
    assert SECRET.encode() not in pickle.dumps(FileText((file,)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (SECRET.encode() + b"\xff", "is not UTF-8 text (byte 12)"),
        (SECRET.encode() * MAX_BYTES, "is longer than 64 KiB"),
    ],
)
def test_what_cannot_be_read_is_told_without_its_content(tmp_path: Path, content: bytes | None, reason: str):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        FileText((file,)).read()
    assert reason in str(caught.value)
    assert str(file) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_what_is_no_file_or_closed_to_us_is_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="Is a directory"):
        FileText((tmp_path,)).read()
    if os.geteuid() == 0:  # root may read everything, but no file below a file
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="Not a directory"):
            FileText((tmp_path / "file" / "password",)).read()
        return
    closed = tmp_path / "password"
    closed.touch(mode=0)
    with pytest.raises(ConfigError, match="Permission denied"):
        FileText((closed,)).read()


def test_a_named_pipe_without_a_writer_is_refused_at_once(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="pipe', which the configuration names, is no ordinary file"):
        FileText((pipe,)).read()
