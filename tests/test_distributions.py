"""The names of our distributions, which nobody else has, and what each brings (ADR 8, ADR 91)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLUGINS = (
    "claim-check cluster django etcd kafka kubernetes mysql neli-kafka openlineage oracle postgres spark "
    "sqlite sqlserver zookeeper"
)
OURS = {
    f"outbox-{name}" for name in f"api core harvester testkit servers demo audit console {PLUGINS}".split()
}
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
    packages = OURS - {"outbox-harvester"}  # which has the package of outbox-core
    for name in packages:
        package = name.replace("-", "_")
        [found] = {*ROOT.glob(f"{package}*"), *ROOT.glob(f"*/{package}"), *ROOT.glob(f"plugins/*/{package}")}
        assert (found / "py.typed").exists()


LOCKED: dict[str, dict[str, Any]] = {
    each["name"]: each for each in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
}


def brought(*names: str) -> set[str]:
    """Returns what pip installs for these, as it is locked, without extras that nothing asks for."""
    found: set[tuple[str, str]] = set()
    wanted = [(name, "") for name in names]
    while wanted:
        name, extra = each = wanted.pop()
        if each in found:
            continue
        found.add(each)
        package = LOCKED[name]
        parts = package["optional-dependencies"][extra] if extra else package.get("dependencies", [])
        for part in parts:
            wanted += [(part["name"], extra) for extra in ("", *part.get("extra", ()))]
    return {name for name, _ in found}


HEAVY = {"pyspark", "py4j", "pandas", "numpy", "pyarrow", "psycopg-binary"}


def test_the_harvester_brings_spark_only_where_it_is_named() -> None:
    assert {"outbox-harvester", "outbox-spark", "pyspark"} <= brought("outbox-core", "outbox-postgres")
    slim = brought("outbox-harvester", "outbox-postgres", "outbox-console", "outbox-audit")
    assert {"confluent-kafka", "psycopg", "fastapi", "jinja2", "uvicorn"} <= slim
    assert not slim & HEAVY


def test_an_application_that_stashes_brings_no_client_of_kafka() -> None:
    names = ("mysql", "oracle", "postgres", "sqlite", "sqlserver", "django")
    found = brought(*(f"outbox-{name}" for name in names))
    assert not found & {"confluent-kafka", "outbox-harvester", "pydantic", *HEAVY}
