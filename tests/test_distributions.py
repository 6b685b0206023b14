"""The names of our distributions, which nobody else has (docs/adr/0008-names-of-distributions.md)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLUGINS = (
    "cluster django etcd kafka kubernetes mysql neli-kafka oracle postgres spark sqlite sqlserver zookeeper"
)
OURS = {f"outbox-{name}" for name in f"api core testkit servers demo audit console {PLUGINS}".split()}
OF_OTHERS = {"outbox", "outbox-sdk"}
"""Names like ours on the public index."""


def projects() -> list[dict[str, Any]]:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]
    files = [path / "pyproject.toml" for pattern in workspace["members"] for path in ROOT.glob(pattern)]
    return [tomllib.loads(file.read_text("utf-8"))["project"] for file in files if file.exists()]


def name_of(requirement: str) -> str:
    """Returns which distribution a requirement names, without extras, versions and markers."""
    return re.split(r"[\s<>=!~;\[@]", requirement)[0]


def required(project: dict[str, Any]) -> set[str]:
    extras = project.get("optional-dependencies", {}).values()
    return {name_of(each) for some in (project.get("dependencies", []), *extras) for each in some}


def test_nothing_of_ours_resolves_to_what_is_of_others() -> None:
    assert {project["name"] for project in projects()} == OURS
    for project in projects():
        named_like_ours = {name for name in required(project) if name.startswith("outbox")}
        assert named_like_ours <= OURS
        assert not required(project) & OF_OTHERS


def test_a_package_is_named_as_its_distribution() -> None:
    for name in OURS:
        package = name.replace("-", "_")
        [found] = {*ROOT.glob(f"{package}*"), *ROOT.glob(f"*/{package}"), *ROOT.glob(f"plugins/*/{package}")}
        assert (found / "py.typed").exists()
