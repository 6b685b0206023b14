"""Every test that docs/guarantees.md names exists, and every promise names a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists():
    named = NAMED.findall(PAGE)
    assert named
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


def test_every_promise_names_a_test():
    promises = re.findall(r"^\| (G\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
    assert [number for number, _ in promises] == [f"G{n}" for n in range(1, len(promises) + 1)]
    assert [number for number, shown in promises if not NAMED.search(shown)] == []
