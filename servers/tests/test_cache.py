"""A cached folder is complete or missing, whichever process builds it and however often that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from outbox_servers.services.cache import cache_root, cached_folder

# Appends a line before and after it builds: two builds would leave four lines.
_BUILDER = """
import sys, time
from pathlib import Path
from outbox_servers.services.cache import cached_folder

root = Path(sys.argv[1])

def build(folder):
    with (root / "builds").open("a") as log:
        log.write("begin\\n")
    (folder / "half").write_text("half")
    time.sleep(0.5)
    (folder / "whole").write_text("whole")
    with (root / "builds").open("a") as log:
        log.write("end\\n")

print((cached_folder("jars-1", build, root=root) / "whole").read_text())
"""


def test_two_processes_at_once_build_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BUILDER, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [each.communicate(timeout=60)[0].strip() for each in both]
    assert outputs == ["whole", "whole"]
    assert (tmp_path / "builds").read_text().split() == ["begin", "end"]


def test_a_killed_build_is_never_used_and_its_remains_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _BUILDER, str(tmp_path)]) as killed:
        while not list(tmp_path.glob(".jars-1-*/half")):
            assert killed.poll() is None
        killed.kill()
    assert not (tmp_path / "jars-1").exists()

    def build(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        (folder / "whole").write_text("again")

    assert (cached_folder("jars-1", build, root=tmp_path) / "whole").read_text() == "again"
    assert list(tmp_path.glob(".jars-1-*")) == []


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        cached_folder("jars-1", build, root=tmp_path)
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == []


def test_the_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path / "here"))
    assert cache_root() == tmp_path / "here"
    assert (tmp_path / "here").is_dir()
