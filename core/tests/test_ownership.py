"""Files that a program takes up unasked must be its user's own, or root's."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError
from outbox_api.support.ownership import other_writer, other_writer_above
from outbox_core.config import load


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default file of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTBOX_FILE", raising=False)
    made = tmp_path / "outbox.yaml"
    made.write_text("harvest: {engine: inline}")
    made.chmod(0o644)
    return made


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o644, 0o755])
def test_what_only_its_owner_may_write_is_read(file, mode):
    file.chmod(mode)
    assert load().harvest.engine.driver == "inline"


def test_a_default_file_that_everybody_may_write_is_read_only_if_it_is_named(file, monkeypatch):
    file.chmod(0o666)
    with pytest.raises(ConfigError, match=r"outbox\.yaml may be written by everybody.* -f outbox\.yaml"):
        load()
    assert load("outbox.yaml").harvest.engine.driver == "inline"
    monkeypatch.setenv("OUTBOX_FILE", "outbox.yaml")
    assert load(variables=os.environ).harvest.engine.driver == "inline"


def test_a_default_file_of_another_user_is_refused(file, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if not file.stat().st_uid:
        pytest.skip("root is trusted")
    with pytest.raises(ConfigError, match="belongs to user"):
        load()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_reads_no_default_file_of_another_user_nor_what_another_users_link_leads_to(file, tmp_path):
    os.chown(file, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to user"):
        load()
    os.chown(file, 0, 0)
    file.rename(tmp_path / "other.yaml")
    file.symlink_to(tmp_path / "other.yaml")
    assert load().harvest.engine.driver == "inline"
    os.chown(file, 65534, 65534, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to user"):
        load()


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Accounts of the machine: this user's, with a group of the same name."""
    made: dict[str, Any] = {"user": "shop", "gid": 4000, "group": "shop", "members": []}

    def user(_: int) -> Any:
        return pwd.struct_passwd((made["user"], "x", os.geteuid(), made["gid"], "", "/", "/bin/sh"))

    def group(gid: int) -> Any:
        return grp.struct_group((made["group"], "x", gid, made["members"]))

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrgid", group)
    return made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_group_may_write_only_if_nobody_but_this_user_is_in_it(file, accounts):
    os.chown(file, -1, 4000)
    file.chmod(0o664)
    assert not other_writer(file)
    for change in ({"gid": 100}, {"group": "staff"}, {"members": ["shop", "other"]}):
        before = dict(accounts)
        accounts.update(change)
        assert "group 4000" in other_writer(file)
        accounts.update(before)


def test_folders_above_count_unless_what_is_in_them_is_safe_from_others(file, tmp_path):
    tmp_path.chmod(0o777)
    assert str(tmp_path) in other_writer_above(file)
    assert not other_writer(file)
    tmp_path.chmod(0o1777)
    assert not other_writer_above(file)
