"""Runs ``outbox new-dialect`` and its like, and judges what they write."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from outbox_core.cli import main

_ROOT = Path(__file__).parents[2]


def new_driver(command: str, name: str, folder: Path) -> int:
    """Runs the command in this process; returns its exit code."""
    with pytest.raises(SystemExit) as caught:
        main([command, name, "--directory", str(folder)])
    return int(str(caught.value.code or 0))


def install(folder: Path, command: str, name: str) -> Path:
    """Returns the folder of a new driver, which has an entry point as if it were installed."""
    assert new_driver(command, name, folder) == 0
    [written] = folder.iterdir()
    project = tomllib.loads((written / "pyproject.toml").read_text())["project"]
    metadata = written / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [f"{name} = {module}" for name, module in project["entry-points"]["outbox"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[outbox]", *points]))
    return written


def assert_good_style(written: Path, package: str) -> None:
    """Asserts that types and style of what was written are those of this repository."""
    settings = ["--config-file", "pyproject.toml"]
    for command in (
        ["mypy", *settings, str(written / package)],
        ["mypy", *settings, str(written / "tests")],
        ["ruff", "check", "--config", "pyproject.toml", "--ignore", "INP001", str(written)],
        ["ruff", "format", "--check", "--config", "pyproject.toml", str(written)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "MYPYPATH": str(written)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
