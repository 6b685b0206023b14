"""Links of the documents lead somewhere, files that they name exist, and every decision is listed."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from deploy.commands import PAGE as COMMANDS
from deploy.commands import page as page_of_commands
from deploy.site.__main__ import main as build_site

from .test_distributions import projects

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "plugins/*/README.md", "examples/**/README.md")
    for page in ROOT.glob(pattern)
    if not page.relative_to(ROOT).parts[0].startswith(".")
)


ROUNDABOUT = re.compile(
    r"\b(amid|anew|happenings|(?:is|are|was|were) told|is to be had|lest|of its own accord|whoever)\b",
    re.IGNORECASE,
)
"""What has a plainer word."""


@cache
def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def headings(page: Path) -> set[str]:
    """Returns the anchors of a page as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def named(page: Path, what: str) -> str:
    """Returns what a test says of a page that is wrong."""
    return f"{page.relative_to(ROOT)}: {what}"


def dead_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            yield named(page, link)


def test_every_link_leads_somewhere() -> None:
    assert [link for page in PAGES for link in dead_links(page)] == []


def test_every_file_that_is_named_exists() -> None:
    folders = "core|api|plugins|testkit|servers|demo|tests|docs|bench|examples"
    # my_db is the dialect that a reader is about to write.
    missing = [
        named(page, path)
        for page in PAGES
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)", prose(page))
        if "my_db" not in path and not (ROOT / path).exists()
    ]
    assert missing == []


def test_the_readme_and_the_site_have_every_page() -> None:
    readme, site = ((ROOT / name).read_text("utf-8") for name in ("README.md", "deploy/site/zensical.toml"))
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name}" in readme
        assert f'"docs/{page.name}"' in site


def test_the_page_of_commands_says_what_their_help_says() -> None:
    assert COMMANDS.read_text("utf-8") == page_of_commands(), "run: python -m deploy.commands"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    assert build_site(tmp_path) == 0
    assert (tmp_path / "site" / "llms.txt").exists()


def test_no_page_says_it_the_hard_way() -> None:
    assert [named(page, words) for page in PAGES for words in ROUNDABOUT.findall(prose(page))] == []


def test_a_column_of_a_table_has_a_name() -> None:
    header = re.compile(r"^(\|.*\|)\n\|[-:|]+\|$", re.MULTILINE)
    headers = [(page, found) for page in PAGES for found in header.findall(page.read_text("utf-8"))]
    assert [named(page, found) for page, found in headers if re.search(r"\| +\|", found)] == []


def test_the_index_lists_every_decision_with_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| ([^|]+) \| [^|]+ \|$", index, re.MULTILINE)
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text("utf-8").splitlines()[0] for page in pages]
    assert [(name, f"# {number}. {title}") for number, name, title in rows] == [
        (page.name, title) for page, title in zip(pages, titles, strict=True)
    ]


PIP = re.compile(r"pip install ((?:(?!   *#|`|\n| {4}).)+)")
"""A command, without the comment behind it."""
EXTRAS = {project["name"]: {*project.get("optional-dependencies", {})} for project in projects()}
PUBLIC = {each["name"] for each in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]}
"""What the lock file knows, and what only a reader needs."""
PUBLIC |= {"pip", "venv-pack"}


def test_a_command_installs_distributions_that_exist() -> None:
    for command in PIP.findall("\n".join(page.read_text("utf-8") for page in PAGES)):
        for name, extras in re.findall(
            r"(?<!\S)([a-z][\w-]*)(?:\[([\w,]+)])?(?=[\s<>=]|$)", " ".join(shlex.split(command))
        ):
            assert name in EXTRAS or (name in PUBLIC and not name.startswith("outbox")), command
            assert not extras or {*extras.split(",")} <= EXTRAS.get(name, {*extras.split(",")}), command
