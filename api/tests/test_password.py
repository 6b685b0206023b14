"""A password in the data source or apart from it, and what follows if it is in a file."""

from pathlib import Path

import pytest
from outbox_api import ConfigError, FileText
from outbox_api.support.file_text import files_of, login_refused, only_password


def test_there_is_one_password(tmp_path: Path):
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    assert only_password(None, "in the source") == "in the source"
    assert only_password(None, "") == ""
    assert only_password("apart", "") == "apart"
    assert only_password(FileText((file,)), "") == "s3cret"
    with pytest.raises(ConfigError, match="leave one of them out") as caught:
        only_password("one", "two")
    assert "one;" not in str(caught.value)
    assert "two" not in str(caught.value)


def test_a_refused_login_is_tried_again_only_where_a_file_may_change():
    files = files_of("text", None, FileText(("user=", Path("/a"), " ", Path("/b"))), FileText((Path("/c"),)))
    assert files == (Path("/a"), Path("/b"), Path("/c"))
    assert not login_refused("no", ()).retryable
    refused = login_refused("no", files[:2])
    assert refused.retryable
    assert str(refused).startswith("no; see that '/a' and '/b', which is read anew at each attempt")
