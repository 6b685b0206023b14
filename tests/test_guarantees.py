"""Tests that docs/guarantees.md names exist; its table says which show a promise, in which tier."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(?:(\w+)::)?(\w+)`")
PROMISES = re.findall(r"^\| (G\d+) \| .+ \|$", PAGE.partition("## Which test shows what")[0], re.MULTILINE)
SHOWN = re.findall(r"^\| (G\d+) \|(.*)\|(.*)\|$", PAGE.partition("## Which test shows what")[2], re.MULTILINE)


def slow(marked: ast.Module | ast.stmt) -> bool:
    """Whether a module, a class or a function is marked as slow, whatever its parameters."""
    if isinstance(marked, ast.Module):
        marks = [ast.unparse(each.value) for each in marked.body if isinstance(each, ast.Assign)]
        return any("pytest.mark.slow" in each for each in marks)
    decorators: list[ast.expr] = getattr(marked, "decorator_list", [])
    return any(ast.unparse(each).startswith("pytest.mark.slow") for each in decorators)


@cache
def tiers(path: str) -> dict[tuple[str, str], str]:
    """Returns the tier of each test of a file: (class or nothing, name) → tier."""
    module = ast.parse((ROOT / path).read_text("utf-8"))
    found = {}
    for each in module.body:
        inner = [each, *each.body] if isinstance(each, ast.ClassDef) else [each]
        for function in inner:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                is_slow = slow(module) or (each is not function and slow(each)) or slow(function)
                scope = each.name if isinstance(each, ast.ClassDef) else ""
                found[scope, function.name] = "test-all" if is_slow else "test"
    return found


def tier(path: str, scope: str, name: str) -> str | None:
    """Returns the tier of a test, whose class need not be named; ``None`` if there is no such test."""
    found = {key: tier for key, tier in tiers(path).items() if key[1] == name and scope in ("", key[0])}
    return next(iter(found.values()), None)


def test_every_test_that_is_named_exists():
    named = NAMED.findall(PAGE)
    assert named
    assert [each for each in named if tier(*each) is None] == []


def test_every_promise_is_shown_at_each_change():
    assert [f"G{n}" for n in range(1, len(PROMISES) + 1)] == PROMISES
    assert [number for number, at_each_change, _ in SHOWN if NAMED.search(at_each_change)] == PROMISES


def test_the_table_has_each_test_in_the_column_of_its_tier():
    for number, *columns in SHOWN:
        for column, expected in zip(columns, ("test", "test-all"), strict=True):
            assert [each for each in NAMED.findall(column) if tier(*each) != expected] == [], number
