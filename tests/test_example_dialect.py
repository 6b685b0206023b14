"""The example of a dialect, and what docs/writing-a-dialect.md says of it.

``.ci/wheels`` installs it from built wheels, and runs the conformance suite.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path

from outbox_api import Seam
from outbox_core.scaffold import write

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "outbox-h2"
PAGE = (ROOT / "docs" / "writing-a-dialect.md").read_text("utf-8")


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if line.strip()]


def test_the_page_says_how_many_lines_its_author_wrote(tmp_path: Path) -> None:
    written, kept = 0, 0
    for path in write(Seam.DIALECT, "h2", tmp_path / "outbox-h2"):
        mine = EXAMPLE / path.relative_to(tmp_path / "outbox-h2")
        if path.suffix == ".py" and "tests" not in path.parts[-2]:
            marks = [line[:2] for line in difflib.ndiff(lines(path), lines(mine))]
            written += marks.count("+ ")
            kept += marks.count("  ")
    said = re.search(r"an author wrote (\d+) lines of Python beside the (\d+)", PAGE)
    assert said
    assert (int(said[1]), int(said[2])) == (written, kept)


def test_the_example_is_outside_of_the_workspace() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]
    assert not [member for member in workspace["members"] if member.startswith("examples")]
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["outbox"] == {"h2": "outbox_h2"}
