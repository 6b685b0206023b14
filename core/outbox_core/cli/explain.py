"""``outbox explain``: what a code means, by the documents on errors and alarms that are beside this file."""

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Annotated, NamedTuple

import typer
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from outbox_core.cli.command import Command
from outbox_core.cli.terminal import output
from outbox_core.text.printable import printable

_PAGES = ("errors.md", "runbook.md", "outages.md")
_HEADING = re.compile(r"^##+ (.+)\n", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
_PROBLEM = re.compile(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \| (.+) \|$", re.MULTILINE)
"""A row of the runbook's health problems: their codes, and what to do or a link to it."""
_CODE = re.compile(r"OUTBOX-|Outbox[A-Z]|[a-z]")
"""How the titles of errors, alarms and problems begin, and no heading of another section."""


class Topic(NamedTuple):
    """A section: its heading or code, and its text in Markdown."""

    title: str
    text: str


def topics() -> Mapping[str, Topic]:
    """Returns all sections in the pages' order, by anchor: that of a code is the code in small letters."""
    parts = [part for page in _PAGES for part in _HEADING.split(_read(page))[1:]]
    found = {_anchor(title): Topic(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    for codes, text in _PROBLEM.findall(found["when-outbox-health-complains"].text):
        link = _LINK.fullmatch(text)
        for code in re.findall(r"[\w-]+", codes):
            found[code] = Topic(code, found[link[3]].text if link else text)
    return found


def _read(page: str) -> str:
    return files("outbox_core.cli").joinpath(page).read_text("utf-8")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _offline(link: re.Match[str]) -> str:
    """Returns a link as a command, or as the name of a file."""
    name, path, anchor = link.groups()
    if path in {"", *_PAGES} and anchor:
        return name if name.lower() == anchor else f"{name} (`outbox explain {anchor}`)"
    return f"{name} ({f'docs/{path}'.replace('docs/../', '')})"


def _nearest(wanted: str, found: Mapping[str, Topic]) -> list[str]:
    """Returns the codes that resemble a word, or up to three whose sections share a text's rarest words."""
    words_of = {name: _words(" ".join(topic)) for name, topic in found.items() if _CODE.match(topic.title)}

    def shared(name: str) -> float:
        common = _words(wanted) & words_of[name]
        return sum(1 / sum(word in words for words in words_of.values()) for word in common)

    alike = sorted(filter(shared, words_of), key=shared, reverse=True)[:3]
    close = get_close_matches(_anchor(wanted), words_of)
    return [found[name].title for name in (alike or close if " " in wanted else close or alike)]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def _table(found: Mapping[str, Topic]) -> Table:
    listed = [topic for topic in found.values() if _CODE.match(topic.title)]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold", min_width=max(len(topic.title) for topic in listed))
    table.add_column(no_wrap=True, overflow="ellipsis")
    for title, text in listed:
        first = " ".join(text.strip().partition("\n\n")[0].split())
        table.add_row(title, _LINK.sub(r"\1", first).replace("`", ""))
    return table


def explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(metavar="CODE", show_default=False, help="What to explain; without it, lists all."),
    ] = None,
) -> None:
    """Say what an error, a health problem or an alarm means, and what to do.

    Takes codes of errors and log lines (OUTBOX-DENIED), of 'outbox health' (no-leader) and of alarms
    (OutboxNoLeader). Of other text it names the nearest. Needs neither a network nor a configuration.
    """
    found, wanted = topics(), " ".join(code or ())
    if not wanted:
        output().print(_table(found))
        return
    topic = found.get(_anchor(wanted))
    if topic is None:
        near = _nearest(wanted, found)
        nearest = f"; nearest: {', '.join(near)}" if near else ""
        raise typer.BadParameter(
            f"there is no code '{printable(wanted)}'{nearest}; 'outbox explain' lists all", param_hint="CODE"
        )
    text = _LINK.sub(_offline, topic.text).strip()
    if sys.stdout.isatty():
        output().print(Text(f"{topic.title}\n", "bold"), Markdown(text))
    else:
        sys.stdout.write(f"{topic.title}\n\n{text}\n")


COMMAND = Command(
    explain,
    ("outbox explain OUTBOX-DENIED", "outbox explain no-leader", "outbox explain   # lists all"),
)
