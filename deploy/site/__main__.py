"""Builds the site from the Markdown of the repository: `make site`, or `python -m deploy.site`.

It copies the pages that ``zensical.toml`` names. A link to a file that is not one of them becomes plain text.
No page loads anything from another server.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).parent / "zensical.toml"
ADRS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "adr").glob("0*.md"))
PYTHON = "docs/python.md"
MODULES = {
    "api": "outbox_api.application.stasher outbox_api.base.record outbox_api.application.inbox "
    "outbox_api.application.sqlalchemy outbox_api.base.payloads outbox_api.application.schemas "
    "outbox_api.application.testing outbox_api.seams.transform outbox_api.base.finding "
    "outbox_api.base.errors",
    "core": "outbox_core.config outbox_core.settings outbox_core.harvest outbox_core.events",
}
"""What the Python reference has, by the folder in the repository."""
FILES = (".png", ".svg", ".csv", ".json", ".css", ".js")
"""What pages show, link to or load."""
ROLE = re.compile(r":\w+:`~?([^`]+)`")
LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s:]+)\)")


def paths(nav: object) -> list[str]:
    """Returns the paths of the pages in a part of the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [path for part in parts for path in paths(part)]  # type: ignore[attr-defined]


def relinked(page: str, text: str, pages: set[str]) -> str:
    """Returns a page's text, in which links lead to pages only."""

    def relink(found: re.Match[str]) -> str:
        path, hash_sign, anchor = found[2].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if target in pages:
            return found[0]
        folder = f"{target}/README.md"
        return (
            f"[{found[1]}]({path.rstrip('/')}/README.md{hash_sign}{anchor})" if folder in pages else found[1]
        )

    return LINK.sub(relink, text)


def draw(site: Path) -> None:
    """Adds the program that draws pictures where there are any; the theme would load it from elsewhere."""
    shutil.copy(str(files("mermaidx") / "assets" / "mermaid.js"), site)
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        if 'class="mermaid"' in text:
            script = posixpath.relpath(site / "mermaid.js", page.parent)
            write(page, text.replace("</head>", f'<script src="{script}"></script></head>', 1))


def summary(page: str, text: str) -> str:
    """Returns the line of a page in the list for machines: its title, its address and its first sentence."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    prose = re.sub(r"```.*?```|^[#|>].*$", "", text, flags=re.DOTALL | re.MULTILINE).split()
    sentence = re.split(r"(?<=\.)\s", " ".join(prose))[0]
    unlinked = LINK.sub(r"\1", sentence)
    return f"- [{title[1] if title else page}]({page}): {unlinked}"


def write(copy: Path, text: str) -> str:
    """Writes a page for Zensical; returns its text."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text, "utf-8")
    return text


def write_reference(into: Path) -> str:
    """Copies the sources of the Python reference, without roles of reStructuredText; returns its page."""
    lines = ["# Python", "", "What programs import, from its docstrings."]
    for folder, modules in MODULES.items():
        package = modules.partition(".")[0]
        for source in (ROOT / folder / package).rglob("*.py"):
            write(into / source.relative_to(ROOT / folder), ROLE.sub(r"`\1`", source.read_text("utf-8")))
        lines += [
            "",
            *(f"::: {module}\n    options:\n      toc_label: {module}" for module in modules.split()),
        ]
    return "\n".join(lines) + "\n"


def main(into: Path = ROOT / "dist") -> int:
    """Builds the site into ``into/site``; returns Zensical's exit code, not 0 if a link leads nowhere."""
    nav = tomllib.loads(SETTINGS.read_text("utf-8"))["project"]["nav"]
    pages = {*paths(nav), *ADRS} - {PYTHON}
    written, site = into / "pages", into / "site"
    shutil.rmtree(written, ignore_errors=True)
    lines = ["# outbox"]
    reference = write_reference(into / "python")
    for door in nav:
        lines += ["", *(f"## {title}" for title in door), ""]
        for page in paths(door):
            text = reference if page == PYTHON else (ROOT / page).read_text("utf-8")
            lines.append(summary(page, write(written / page, relinked(page, text, pages))))
    for page in ADRS:
        write(written / page, relinked(page, (ROOT / page).read_text("utf-8"), pages))
    for file in [*(ROOT / "docs").rglob("*.*"), *SETTINGS.parent.glob("site.*")]:
        if file.suffix in FILES:
            copy = written / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    # Zensical writes nothing outside the folder of its settings.
    settings = shutil.copy(SETTINGS, into)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--clean", "-f", str(settings)]
    done = subprocess.run(command, check=False)  # noqa: S603 - a program of this environment
    if done.returncode == 0:
        write(site / "llms.txt", "\n".join(lines) + "\n")
        draw(site)
        shutil.copytree(written, site, dirs_exist_ok=True)  # the pages as they were written, too
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
