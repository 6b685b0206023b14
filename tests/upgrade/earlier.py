"""An earlier version of outbox, taken from the history of this repository, beside the present one."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def unpack(revision: str, folder: Path) -> None:
    """Writes the files of a revision into a folder.

    Raises:
        CalledProcessError: There is no such revision; a shallow clone has no history.
    """
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def environment(folder: Path) -> Mapping[str, str]:
    """Returns the variables with which this Python runs the version in a folder instead of the present one.

    Its packages come first in the path, and so do the descriptions of its distributions, which tell the
    drivers that they have. What it needs of others is what is installed.
    """
    described = folder / "distributions"
    described.mkdir()
    paths = [described]
    for file in sorted([*folder.glob("*/pyproject.toml"), *folder.glob("plugins/*/pyproject.toml")]):
        project = tomllib.loads(file.read_text())["project"]
        _describe(described, project)
        paths.append(file.parent)
    return {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def _describe(folder: Path, project: Mapping[str, object]) -> None:
    name, version = project["name"], project["version"]
    about = folder / f"{str(name).replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project.get("entry-points", {})
    assert isinstance(groups, dict)
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in groups.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
