"""Links of the documents lead somewhere, files that they name exist, and every decision is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_the_index_lists_every_decision_with_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE)
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text("utf-8").splitlines()[0] for page in pages]
    assert [(name, f"# {number}. {title}") for number, name, title in rows] == [
        (page.name, title) for page, title in zip(pages, titles, strict=True)
    ]
