"""Names that operators see: loggers are below one root, and variables of the environment have one prefix."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = [
    path
    for folder in ("api", "core", "plugins", "console", "audit", "demo", "servers")
    for path in (ROOT / folder).rglob("*.py")
    if "tests" not in path.parts
]
OTHER_LOGGERS = {"py4j", "uvicorn.error"}
OTHER_VARIABLES = re.compile(
    r"(OTEL|PATH|GRAFANA|KUBERNETES|SPARK|PYSPARK|TEXTUAL|XDG|JAVA|SUDO|SSL|PG|KAFKA|ZOOKEEPER|MYSQL)_?\w*"
)
"""Of libraries, of services and of systems."""


def found(pattern: str) -> list[str]:
    return [name for path in PRODUCT for name in re.findall(pattern, path.read_text("utf-8"))]


def test_loggers_are_below_one_root() -> None:
    names = found(r"getLogger\((.+?)\)")
    assert len(names) > 40
    literal = {name.strip('"') for name in names if name.startswith('"')}
    assert {each for each in literal - OTHER_LOGGERS if not re.match(r"outbox\.\w", each)} == set()
    assert "__name__" not in names


def test_our_variables_of_the_environment_have_one_prefix() -> None:
    names = found(r"environ(?:ment)?(?:\.(?:get|setdefault|pop)\(|\[)\"([A-Z][A-Z0-9_]+)\"")
    names += found(r"_(?:number|delay)\(\"([A-Z_]+)\"\)") + found(r"_VARIABLE = \"([A-Z_]+)\"")
    assert len(names) > 20
    assert {
        each for each in names if not each.startswith("OUTBOX_") and not OTHER_VARIABLES.fullmatch(each)
    } == set()
