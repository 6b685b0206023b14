"""``outbox new-dialect``: its tests run at once, and fail in the order in which an author writes the code."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from outbox_api import Dialect, Seam, find
from outbox_api.application.registry import installed
from outbox_core.scaffold import objection
from outbox_sqlite import SqliteDialect, SqliteIdiom, SqliteOptions
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

from .new_drivers import assert_good_style, install, new_driver

pytestmark = pytest.mark.slow


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a new dialect ``my_db``, on the path with its entry point, as if installed."""
    folder = install(tmp_path, "new-dialect", "my_db")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("outbox_my_db")]:
        del sys.modules[name]


def use(place: Path) -> None:
    """Does with the new dialect, on a file of its own, what the suite's tests do first."""
    place.touch()
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("my_db", {"data_source": str(place)}), stack)
        box.dialect.create()
        values = box.fill(20)
        assert box.survey() == values
        assert sum(len(hand.mark()) for hand in box.lead_all(3)) == 20


def _sqlite(options: Any) -> SqliteOptions:
    return SqliteOptions(data_source=options.data_source)


def donated(piece: str) -> Any:
    """Returns SQLite's method of this name, which works on the new dialect's options."""
    if piece in ("open", "open_as_application"):
        return lambda self: getattr(
            SqliteDialect(SqliteOptions(data_source=self.options.data_source)), piece
        )()
    return next(owner.__dict__[piece] for owner in (SqliteIdiom, SqliteDialect) if piece in owner.__dict__)


def test_from_failure_to_failure_it_becomes_a_dialect(written: Path, tmp_path: Path) -> None:
    idiom: Any = import_module("outbox_my_db.idiom").MyDbIdiom
    dialect: Any = import_module("outbox_my_db.dialect").MyDbDialect
    for name in ("begin", "now", "shared_lock", "exclusive_lock"):
        setattr(idiom, name, getattr(SqliteIdiom, name))
    asked: list[str] = []
    while len(asked) < 8:
        with pytest.raises(NotImplementedError) as caught:
            use(tmp_path / f"{len(asked)}.db")
        step = re.match(r"step (\d) of 8: write MyDb(Idiom|Dialect)\.(\w+)\. ", str(caught.value))
        assert step, caught.value
        asked.append(step[3])
        assert step[1] == str(len(asked)), "the steps are asked for in order"
        setattr(idiom if step[2] == "Idiom" else dialect, step[3], donated(step[3]))
    assert asked == [
        "address",
        "errors",
        "open",
        "outbox_statements",
        "error_kind",
        "open_as_application",
        "age_seconds",
        "lane_of",
    ]
    use(tmp_path / "shop.db")


def test_its_suite_runs_at_once_and_says_what_to_write_first(written: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", str(written / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=written, timeout=240, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "step 1 of 8: write MyDbDialect.address." in done.stdout
    assert re.search("=+ 1 (failed|error) in", done.stdout), "the rest waits for it"


def test_what_is_written_is_typed_and_in_good_style(written: Path) -> None:
    assert_good_style(written, "outbox_my_db")


def test_once_installed_it_is_found_by_its_name(written: Path) -> None:
    (found,) = [each for each in installed() if each.name == "my_db"]
    assert (found.distribution, found.seams, found.problem) == ("outbox-my-db", (Seam.DIALECT,), "")
    driver = find(Seam.DIALECT, "my_db")
    made: Dialect = driver.create(driver.options(data_source="x"))
    assert made.capabilities


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My-DB", "small letters"),
        ("2nd", "small letters"),
        ("a.b", "small letters"),
        ("", "small letters"),
        ("sqlite", "is there already, in outbox-sqlite"),
        ("static", "is there already, in outbox-harvester"),
        ("absent", "pip install outbox-absent"),
        ("api", "outbox_api is installed already"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    reason: str,
) -> None:
    monkeypatch.setattr("outbox_core.scaffold.DISTRIBUTIONS", {"absent": "outbox-absent"})
    assert reason in objection(name)
    assert new_driver("new-dialect", name, tmp_path) == 2
    assert "Invalid value" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "outbox-my-db"
    folder.mkdir()
    assert new_driver("new-dialect", "my_db", tmp_path) == 2
    assert "exists already" in capsys.readouterr().err
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    assert new_driver("new-dialect", "my_db", tmp_path / "file") == 2
    assert "cannot write" in capsys.readouterr().err
