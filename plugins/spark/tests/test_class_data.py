"""Archives of class data for Spark's JVM: where they are, who makes them, and what becomes of broken ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from outbox_api import OutboxError
from outbox_spark import training
from outbox_spark.class_data import find_archive, may_archive, options_for
from outbox_spark.jvm import java_home


@pytest.fixture
def homes(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """Homes of a Java and a Spark, and a cache."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    for file in (java / "lib/modules", java / "lib/server/classes.jsa", spark / "jars/core.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return java, spark


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "outbox" / "spark-1.jsa"


@pytest.fixture
def trained(monkeypatch) -> list[Path]:
    """Trains without Spark; the drafts of all trainings."""
    drafts: list[Path] = []

    def train(draft: Path) -> None:
        drafts.append(draft)
        draft.write_text("classes")

    monkeypatch.setattr(training, "_train", train)
    return drafts


def test_an_archive_belongs_to_a_java_its_options_and_a_set_of_jars(homes, tmp_path):
    java, spark = homes
    found = [find_archive(java, spark, "-a"), find_archive(java, spark, "-b")]
    (spark / "jars/more.jar").touch()
    found.append(find_archive(java, spark, "-a"))
    (java / "lib/modules").write_text("another")
    found.append(find_archive(java, spark, "-a"))
    paths = set(filter(None, found))
    assert len(paths) == 4
    assert {path.parent for path in paths} == {tmp_path / "cache" / "outbox"}


def test_some_have_no_archive(homes, monkeypatch, tmp_path):
    java, spark = homes
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two words"))  # the JVM's options are split there
    assert find_archive(java, spark, "") is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert find_archive(java, spark, "") is not None
    (java / "lib/server/classes.jsa").unlink()  # a Java that has none of its own
    assert find_archive(java, spark, "") is None


def test_only_an_embedded_jvm_without_options_of_the_user_has_an_archive():
    assert may_archive("local[2]", {"spark.driver.memory": "1g"})
    assert not may_archive("spark://master:7077", {})
    assert not may_archive("local[2]", {"spark.driver.extraJavaOptions": "-Xss4m"})


def test_an_archive_is_made_once(archive, trained):
    assert not options_for(archive)
    assert training.make(archive) == training.make(archive) == archive
    assert len(trained) == 1
    assert f"-XX:SharedArchiveFile={archive} " in options_for(archive)
    assert list(archive.parent.iterdir()) == [archive]


def test_a_training_that_fails_leaves_nothing_(archive, monkeypatch):
    def fail(draft: Path) -> None:
        draft.touch()
        raise OutboxError("Spark did not start")

    monkeypatch.setattr(training, "_train", fail)
    with pytest.raises(OutboxError, match="did not start"):
        training.make(archive)
    monkeypatch.setattr(training, "_train", lambda _: None)
    with pytest.raises(OutboxError, match="SPARK_CONF_DIR"):
        training.make(archive)
    assert list(archive.parent.iterdir()) == []


def test_archives_that_nobody_has_made_for_long_are_removed(archive, trained):
    archive.parent.mkdir(parents=True)
    old, new = (archive.with_name(f"spark-{name}.jsa") for name in ("old", "new"))
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    training.make(archive)
    assert not old.exists()
    assert new.exists()


def test_an_archive_that_somebody_else_may_have_written_is_not_used(archive, caplog):
    archive.parent.mkdir(parents=True)
    archive.touch(0o600)
    assert options_for(archive)
    archive.chmod(0o666)
    assert not options_for(archive)
    assert f"{archive} may be written by everybody" in caplog.text
    archive.chmod(0o600)
    archive.parent.chmod(0o777)
    assert not options_for(archive)
    assert f"{archive.parent} may be written by everybody" in caplog.text


def test_an_archive_is_nobody_elses_to_write_whatever_the_umask(archive, trained):
    archive.parent.parent.mkdir()
    umask = os.umask(0)
    try:
        training.make(archive)
    finally:
        os.umask(umask)
    assert options_for(archive)


def test_a_broken_archive_is_ignored_without_a_word(archive):
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"broken" * 1000)
    command = [str(java_home() / "bin" / "java"), *options_for(archive).split(), "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = (done.stdout + done.stderr).lower()
    assert "version" in said
    assert "archive" not in said
    assert "cds" not in said
