"""Small graphs, drawn as SVG: no I/O, no styles, nothing that moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from markupsafe import Markup

WIDTH, HEIGHT = 300, 48
SHORTEST = timedelta(minutes=10)
"""What a graph spans at least: it would look like much with a few points in all its width."""

_NAMED = {60: "hour", 1440: "day"}
_LONG = 120
"""From so many minutes on they are told as hours."""
_UNKNOWN = "–"  # noqa: RUF001 - a dash

Sample = tuple[datetime, float | None]
"""A moment, and the figure then; ``None`` where it is not known."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph with its labels."""

    name: str  # what it shows, for elements' names
    heading: str
    svg: Markup
    now: str  # the last figure; a dash if it is not known
    most: str  # the greatest figure
    begins: datetime  # when the graph begins


def graph(
    name: str,
    heading: str,
    samples: Sequence[Sample],
    now: datetime,
    text: Callable[[float], str],
    *,
    longest: timedelta,
) -> Graph:
    """Draws figures over time, with gaps where they are not known; it spans no more than ``longest``."""
    begins = max(now - longest, min([at for at, _ in samples[:1]] + [now - SHORTEST]))
    inside = [(at, figure) for at, figure in samples if at >= begins]
    known = [figure for _, figure in inside if figure is not None]
    most = max(known, default=0.0)
    last = inside[-1][1] if inside else None
    said_now = _UNKNOWN if last is None else text(last)
    said_most = text(most) if known else _UNKNOWN
    span = (now - begins).total_seconds()

    def place(sample: tuple[datetime, float]) -> str:
        x = (sample[0] - begins).total_seconds() / span * WIDTH
        y = HEIGHT - 1 - (sample[1] / most if most else 0.0) * (HEIGHT - 3)
        return f"{min(x, WIDTH):.1f},{y:.1f}"

    shapes = Markup("").join(_line([place(each) for each in run]) for run in _runs(inside))
    description = (
        f"{heading} over the last {_words(span)}: now {_aloud(said_now)}, at most {_aloud(said_most)}"
    )
    gaps = len(known) < len(inside)
    svg = Markup(
        '<svg id="graph-{name}" class="graph" viewBox="0 0 {width} {height}" preserveAspectRatio="none" '
        'role="img" aria-labelledby="graph-{name}-title graph-{name}-desc">'
        '<title id="graph-{name}-title">{heading}</title><desc id="graph-{name}-desc">{description}</desc>'
        '<path class="base" d="M0,{base}H{width}"/>{shapes}</svg>'
    ).format(
        name=name,
        width=WIDTH,
        height=HEIGHT,
        base=HEIGHT - 1,
        heading=heading,
        description=f"{description}; not known at times" if gaps else description,
        shapes=shapes,
    )
    return Graph(name, heading, svg, said_now, said_most, begins)


def _runs(samples: Sequence[Sample]) -> list[list[tuple[datetime, float]]]:
    """Returns the stretches in which all figures are known."""
    return [
        [(at, figure) for at, figure in run if figure is not None]
        for known, run in groupby(samples, lambda sample: sample[1] is not None)
        if known
    ]


def _line(places: list[str]) -> Markup:
    if len(places) == 1:  # a line of no length, which its round ends make a dot
        places = places * 2
    first, last = places[0].partition(",")[0], places[-1].partition(",")[0]
    line = " ".join(places)
    return Markup(
        '<path class="area" d="M{first},{base} L{line} L{last},{base}Z"/><path class="line" d="M{line}"/>'
    ).format(first=first, last=last, line=line, base=HEIGHT - 1)


def _aloud(said: str) -> str:
    return "not known" if said == _UNKNOWN else said


def _words(seconds: float) -> str:
    minutes = round(seconds / 60)
    return _NAMED.get(minutes) or (f"{minutes} minutes" if minutes < _LONG else f"{minutes / 60:.1f} hours")
