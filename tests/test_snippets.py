"""Every snippet of the documents is right, as far as that shows without running it.

``TESTS`` lists the tests that also run snippets. No test runs the others.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, NamedTuple

import jsonschema
import pytest
import sqlglot
import yaml
from outbox_api.portable.sources import COLUMNS
from outbox_core.cli.app import load_command
from outbox_core.config import parse
from outbox_core.config.decode import camel
from outbox_core.config.harvest import HarvestKeys
from outbox_core.config.schema import schema
from typer.core import TyperGroup

from .test_distributions import projects
from .test_documents import PAGES, ROOT

SHELL = ("sh", "bash", "console")
STASHING = "tests/test_stashing_snippets.py"
TESTS = (
    (".ci/documented_commands.py", "sh", "README.md docs/install.md"),
    ("api/tests/test_testing.py", "python", "docs/testing.md"),
    ("core/tests/test_cli_replay.py", "sql", "docs/kept-records.md"),
    ("core/tests/test_http_nginx.py", "nginx", "docs/http.md"),
    ("core/tests/test_transforms.py", "python", "docs/transforms.md"),
    ("plugins/kubernetes/tests/conftest.py", "yaml", "plugins/kubernetes/README.md"),
    ("plugins/mysql/tests/test_mysql_roles.py", "sql", "plugins/mysql/README.md"),
    ("plugins/postgres/tests/test_postgres_roles.py", "sql", "plugins/postgres/README.md"),
    ("plugins/spark/tests/test_spark_sinks.py", "python", "docs/spark.md"),
    ("tests/replication.py", "sql ini", "docs/multi-cluster.md"),
    ("tests/test_inbox.py", "python", "docs/inbox.md"),
    ("tests/test_other_languages.py", "java go typescript csharp", "docs/other-languages.md"),
    ("tests/test_payloads.py", "python", "docs/payloads.md"),
    (STASHING, "python", "README.md api/README.md docs/auditing.md docs/configuration.md"),
    (STASHING, "python", "docs/fastapi.md docs/sqlalchemy.md plugins/sqlite/README.md"),
    ("tests/quickstart.py", "console python yaml", "docs/start.md"),
)
"""What runs the snippets in some languages of some pages."""
RUN = {(page, each): test for test, some, pages in TESTS for page in pages.split() for each in some.split()}
PROGRAMS = re.compile(
    r"(.*/)?(cd|chmod|cp|curl|docker|export|grep|helm|jq|kill|kubectl|mkdir|openssl|pip|pytest|python3?|"
    r"spark-pipelines|spark-submit|systemctl|tar|tr|uvicorn|venv-pack)"
)
"""Programs of others."""
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SCHEMA = json.loads((ROOT / "deploy" / "chart" / "values.schema.json").read_text("utf-8"))
FOREIGN = {"apiVersion", "livenessProbe", "rule_files", "services"}
"""Keys of which a configuration of another program has one."""
FOLDERS = "api|bench|console|core|deploy|docs|examples|plugins|servers|tests"
NAMED = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/(?!\S*FILE)[\w./-]+")
BEFORE = re.compile(
    r"^((\w+=\S+|uv run( --with \S+)?|docker exec outbox|python manage\.py(?= outbox)|python -m(?= pip)) +)+"
)
"""What may stand before a command, on its line."""


class Snippet(NamedTuple):
    """A block of a page, and the line before it."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: Path) -> Iterator[Snippet]:
    text, name = page.read_text("utf-8"), str(page.relative_to(ROOT))
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        yield Snippet(name, text.count("\n", 0, found.start()) + 1, found[2], dedent(found[3]))


OF = {str(page.relative_to(ROOT)): [*snippets(page)] for page in PAGES if page.parent.name != "adr"}


# --- commands ---------------------------------------------------------------------------------------


def commands(snippet: Snippet) -> Iterator[list[str]]:
    """Yields the words of each command, without what only says where it runs."""
    text = snippet.text.replace("\\\n", " ")
    if snippet.language == "console":
        text = "\n".join(re.findall(r"^\$ (.*)$", text, re.MULTILINE))
    for line in re.sub(r"(^|\s+)# .*$| \d?>>?\S+", "", text, flags=re.MULTILINE).splitlines():
        lexer = shlex.shlex(BEFORE.sub("", line), posix=True, punctuation_chars="&|;")
        lexer.whitespace_split, lexer.commenters = True, ""
        command: list[str] = []
        for word in (*lexer, ";"):
            if not set(word) <= set("&|;"):
                command.append(word)
            elif command:
                yield command
                command = []


def check_command(program: str, *words: str) -> None:
    """Checks that what a command names exists: subcommands, options, targets, modules."""
    if program == "outbox" and words != ("--help",):
        name, *arguments = words[words[0] == "--debug" :]
        command = load_command(name).build()
        if isinstance(command, TyperGroup):
            command = command.commands[arguments.pop(0)]
        command.make_context("outbox", arguments)
    elif program == "make":
        rule = re.search(rf"^{words[0]}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
        assert rule, words
        given = dict(each.split("=", 1) for each in words[1:])
        assert all(f"$({name})" in rule[1] for name in given)
        if called := re.search(r"\$\(RUN\) (.*) \$\(ARGS\)\n", rule[1]):
            check_command(*shlex.split(called[1]), *shlex.split(given.get("ARGS", "")))
    elif program.startswith("python") and words[0] == "-m":
        check_module(*words[1:])
    elif program.startswith(".ci/"):
        assert (ROOT / program).is_file()
    else:
        ours = {script for project in projects() for script in project.get("scripts", {})}
        assert program in ours or PROGRAMS.fullmatch(program), program


def check_module(module: str, *words: str) -> None:
    """Checks that there is a module, and that one of ours has the options."""
    path = module.replace(".", "/")
    found = [*ROOT.glob(f"{path}.py"), *ROOT.glob(f"{path}/*.py"), *ROOT.glob(f"*/{path}/*.py")]
    assert found or find_spec(module), module
    sources = "".join(file.read_text("utf-8") for file in found)
    assert not found or [each for each in words if each[:2] == "--" and f'"{each}"' not in sources] == []


def check_shell(snippet: Snippet, _: Path) -> None:
    for command in commands(snippet):
        check_command(*command)
    if snippet.language != "console":
        subprocess.run(["bash", "-n"], input=snippet.text, text=True, check=True)


# --- configurations and programs --------------------------------------------------------------------


def is_foreign(snippet: Snippet) -> bool:
    """Returns whether a configuration is one of another program."""
    if snippet.language == "toml":
        return "project" not in tomllib.loads(snippet.text)
    return bool(FOREIGN & {*next(yaml.safe_load_all(snippet.text))})


@cache
def validator() -> Any:
    return jsonschema.Draft7Validator(schema())


def check_yaml(snippet: Snippet, folder: Path) -> None:
    """Reads a configuration as a harvester does, within the keys that are left out."""
    text = snippet.text
    first, *_ = yaml.safe_load_all(text)
    if is_foreign(snippet):
        return
    if set(first) <= set(SCHEMA["properties"]):
        jsonschema.validate(first, SCHEMA)
        text = yaml.safe_dump(first.get("config", {"harvest": {}}))
    if set(first) <= {camel(field.name) for field in fields(HarvestKeys)}:
        text = f"harvest:\n{indent(text, '  ')}"
    validator().validate(yaml.safe_load(text))
    for file in re.findall(r"\$\{file:(.+?)}", text):
        (folder / Path(file).name).write_text(f"a long secret of {file}")
        text = text.replace(file, str(folder / Path(file).name))
    # A driver that the page has its reader write or build is not installed.
    text = re.sub(r"^ +\w+:(\n +| {)driver: (my_|h2\n).*\n?(    .*\n)*", "", text, flags=re.MULTILINE)
    parse(text, str(snippet), dict.fromkeys(re.findall(r"\$\{(\w+)", text), "x"))


def named(module: str, name: str) -> Any:
    """Returns what a module of ours has under a name."""
    if module == "outbox_django.test":  # cannot be imported outside of a project
        source = (ROOT / "plugins" / "django" / "outbox_django" / "test.py").read_text("utf-8")
        assert re.search(rf"^(class|def) {name}\b", source, re.MULTILINE)
        return lambda *_, **__: None
    return getattr(import_module(module), name)


@cache
def imported(page: str) -> dict[str, Any]:
    """Returns what the snippets of a page import of ours."""
    return {
        name.asname or name.name: named(node.module, name.name)
        for snippet in OF[page]
        if snippet.language == "python" and not snippet.text.startswith("# SQLite")
        for node in ast.walk(ast.parse(snippet.text))
        if isinstance(node, ast.ImportFrom) and node.module and re.match(r"(pyspark_)?outbox", node.module)
        for name in node.names
    }


def check_python(snippet: Snippet, _: Path) -> None:
    """Checks that what is imported of ours exists, and takes the arguments."""
    known = imported(snippet.page)
    if snippet.text.startswith("# SQLite"):  # parts of methods, which a test finds in the plugin
        return
    for node in ast.walk(ast.parse(snippet.text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            keywords = {each.arg or "": each.value for each in node.keywords}
            signature(known[node.func.id]).bind(*node.args, **keywords)


def check_sql(snippet: Snippet, _: Path) -> None:
    assert {*re.findall(r"\bkafka_\w+", snippet.text)} <= {*COLUMNS}
    if (snippet.page, "sql") in RUN:
        return
    text = re.sub(r"--.*|ROLLBACK PREPARED 'name'", "", snippet.text)  # which sqlglot does not know
    for statement in text.split(";"):
        for dialect in ("postgres", "mysql", "oracle", "tsql"):
            with suppress(sqlglot.errors.ParseError):
                sqlglot.parse(statement, read=dialect)
                break
        else:
            pytest.fail(statement)


CHECKS = {
    **dict.fromkeys(SHELL, check_shell),
    "python": check_python,
    "sql": check_sql,
    "toml": lambda snippet, _: tomllib.loads(snippet.text),
    "yaml": check_yaml,
    "json": lambda snippet, _: json.loads(re.sub(r'^(".*)', r"{\1}", snippet.text, flags=re.DOTALL)),
}


@pytest.mark.parametrize("snippet", [each for found in OF.values() for each in found], ids=str)
def test_a_snippet_is_right(snippet: Snippet, tmp_path: Path) -> None:
    if snippet.language in CHECKS:
        CHECKS[snippet.language](snippet, tmp_path)
    elif snippet.language in {"", "text"}:  # what a program prints, or a drawing
        assert not re.search(r"^ *(\$ |outbox |make |pip |python )", snippet.text, re.MULTILINE)
    else:
        assert snippet.language == "mermaid" or (snippet.page, snippet.language) in RUN
    assert [path for path in NAMED.findall(snippet.text) if not (ROOT / path).exists()] == []


# --- what tests run ------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "language"), RUN)
def test_what_runs_snippets_reads_their_page(page: str, language: str) -> None:
    assert language in {snippet.language for snippet in OF[page]}
    test, path = RUN[page, language], Path(page)
    text, folders = (ROOT / test).read_text("utf-8"), {*Path(test).parents, Path("docs")}
    assert page in text or (path.name in text and path.parent in folders)
