"""Tables: the one at the end of a run, of what each kind of fault has done, and the heads of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .judge import Round

_COLUMNS = (
    *("fault", "database", "engine", "delivery", "rounds", "kills", "records", "lost", "repeated"),
    *("out of order", "torn", "in doubt", "found", "went wrong"),
)
_WORDS = 4


class Ran(NamedTuple):
    """A round, and where it ran: database, engine and delivery."""

    where: tuple[str, str, str]
    round: Round


def table(all_rounds: Iterable[Ran]) -> str:
    """Returns the table as aligned text."""
    groups: dict[tuple[str, ...], list[Round]] = {}
    for where, each in all_rounds:
        groups.setdefault((each.fault.name, *where), []).append(each)
    rows = [_COLUMNS, *((*of, *map(_cell, _sums(rounds))) for of, rounds in groups.items())]
    widths = [max(len(row[number]) for row in rows) for number in range(len(_COLUMNS))]
    return "\n".join(_line(row, widths) for row in rows)


def kills(each: Round) -> int | None:
    """Returns how many brokers a round has ended; ``None`` if the fault does not count them."""
    found = each.strike.facts.get("kills") if each.strike else None
    return found if isinstance(found, int) else None


def head(columns: Sequence[str], words: int) -> str:
    """Returns the head of a table in Markdown; the first ``words`` columns contain text, others numbers."""
    rule = "|---" * words + "|--:" * (len(columns) - words)
    return f"| {' | '.join(columns)} |\n{rule}|\n"


def _sums(rounds: Sequence[Round]) -> list[int | None]:
    counted = [number for each in rounds if (number := kills(each)) is not None]
    names = ("records", "lost", "repeated", "overtaken", "torn", "doubted", "doubted_found")
    return [
        len(rounds),
        sum(counted) if counted else None,
        *(sum(getattr(each, name) for each in rounds) for name in names),
        sum(bool(each.wrong) for each in rounds),
    ]


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if place < _WORDS else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
