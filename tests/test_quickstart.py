"""docs/start.md without Docker: its commands print what it shows. `.ci/image` follows it with Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from .quickstart import FILES, SETTLED, TOLD, blocks, follow


def test_the_page_shows_the_files_that_are_used() -> None:
    assert blocks("yaml") == [(FILES / "outbox.yaml").read_text("utf-8")]
    assert blocks("python") == [(FILES / "shop.py").read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quick_start_prints_what_the_page_shows(tmp_path: Path) -> None:
    # What is installed stays as it is.
    make = f"make --no-print-directory --old-file=.venv/.ready quickstart FOLDER={tmp_path / 'shop'}"
    kill = f"{SETTLED.format('outbox status')}; kill -9 $!"
    replaced = {"make quickstart": make, "kill -9 $!": kill, "outbox status": TOLD.format("outbox status")}
    follow(replaced, {"BASH_ENV": str(FILES / "bashrc")}, docker=False)
