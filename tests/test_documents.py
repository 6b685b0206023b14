"""Links of the documents lead somewhere, files that they name exist, and every decision is listed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from outbox_sdk.registry import DISTRIBUTIONS, installation

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "plugins/*/README.md", "examples/**/README.md")
    for page in ROOT.glob(pattern)
    if not page.relative_to(ROOT).parts[0].startswith(".")
)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in headings(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:core|sdk|plugins|testkit|servers|demo|tests|docs|bench|examples)/[\w./-]+)", prose(page)
    )
    # my_db is the dialect that a reader is about to write.
    missing = [path for path in named if "my_db" not in path and not (ROOT / path).exists()]
    assert missing == []


def test_the_readme_links_every_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name}" not in readme] == []


def test_the_index_lists_every_decision_with_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE)
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text("utf-8").splitlines()[0] for page in pages]
    assert [(name, f"# {number}. {title}") for number, name, title in rows] == [
        (page.name, title) for page, title in zip(pages, titles, strict=True)
    ]


PIP = re.compile(r"pip install ((?:(?!   *#|`|\n| {4}).)+)")
"""A command, without the comment behind it."""
DEFAULTS = ("sdk", "core", "plugins/kafka", "plugins/neli_kafka", "plugins/kafka_client")


def distribution(folder: Path) -> tuple[str, frozenset[str]]:
    """Returns the name of a distribution of ours, and of those that it needs, with its extra for tests."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project.get("optional-dependencies", {}).get("test", ())]
    names = (re.split(r"[^\w-]", each)[0] for each in needed)
    return project["name"], frozenset(name for name in names if name.startswith("outbox-"))


def wanting(command: str, page: Path, present: set[str]) -> set[str]:
    """Returns which distributions of ours a command would look for on an index; adds what it installs."""
    found: set[str] = set()
    for word in shlex.split(command):
        if word.startswith("-"):
            continue
        path = re.sub(r"\[.*", "", word)
        if not path.startswith("."):
            found |= {word} if word.startswith("outbox") else set()
            continue
        bases = (base / path for base in (ROOT, page.parent))
        folders = [base for base in bases if base.resolve() != ROOT and (base / "pyproject.toml").is_file()]
        if path == "." and not folders:  # a plugin that a reader has made with the scaffold
            found |= {"outbox-sdk", "outbox-testkit"}
            continue
        assert folders, f"{word} is no distribution"
        name, needed = distribution(folders[0])
        present.add(name)
        found |= needed
    return found - present


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_looks_for_our_distributions_on_an_index(page: Path) -> None:
    """Nothing of ours is published, and somebody else's distribution may have such a name."""
    present: set[str] = set()
    for command in PIP.findall(page.read_text("utf-8")):
        if "dist/outbox" not in command and "adr" not in page.parts:
            assert wanting(command, page, present) == set(), command


@pytest.mark.parametrize("driver", sorted(DISTRIBUTIONS))
def test_no_cure_looks_for_our_distributions_on_an_index(driver: str) -> None:
    present = {distribution(ROOT / folder)[0] for folder in DEFAULTS}
    (command,) = PIP.findall(installation(driver))
    assert wanting(command, ROOT / "README.md", present) == set()
