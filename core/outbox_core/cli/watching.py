"""``outbox status --watch``: looks again and again at one outbox or several, and shows what happens."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from outbox_api.errors import DriverError, OutboxError
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outbox_core.cli.graphs import NARROWEST_WINDOW, graphs
from outbox_core.cli.invocation import StopSignals
from outbox_core.cli.outboxes import Chosen
from outbox_core.cli.screen import Screen
from outbox_core.cli.snapshot import as_text, present
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.history import History, HistoryEvent
from outbox_core.printable import printable
from outbox_core.snapshot import Snapshot, Views, as_data
from outbox_core.status import Status, date_and_clock

_HEADINGS = ("outbox", "backlog", "oldest", "parked", "records/s", "leader", "since", "elector")
_BRIEF = frozenset({"backlog", "oldest", "parked", "records/s", "leader"})
_NUMBERS = frozenset({"backlog", "oldest", "parked", "records/s"})


def overview(found: Sequence[tuple[str, Snapshot | OutboxError]]) -> RenderableType:
    """Returns a table of outboxes.

    Args:
        found: The title of each, and its state, or why that is not known.
    """
    if not found:
        return "the configuration names no outbox, and its templates match no table"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    apart = any(isinstance(state, Snapshot) and state.clusters is not None for _, state in found)
    for heading in (*_HEADINGS, "takes over") if apart else _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for title, state in found:
        if isinstance(state, OutboxError):
            table.add_row(Text(printable(title), "bold"), *"----", Text("not known, see below", "yellow"))
        else:
            status = present(state)
            cells = [*_cells(status), _taken_over(status)] if apart else _cells(status)
            table.add_row(Text(printable(title), "bold"), *cells)
    return table


def in_brief(snapshot: Snapshot) -> str:
    """Returns the most important of one outbox as a line."""
    said = zip(_HEADINGS[1:], _cells(present(snapshot)), strict=True)
    return ", ".join(f"{heading} {cell}" for heading, cell in said if heading in _BRIEF)


def _taken_over(status: Status) -> Text:
    """Names the clusters whose records this one takes over."""
    return Text(status.takes_over or "-", "yellow" if status.takes_over else "")


def _cells(status: Status) -> list[RenderableType]:
    figures, leader = status.figures, status.leader
    assert figures is not None  # noqa: S101 - of a snapshot
    cells: list[RenderableType] = [
        figures.backlog,
        figures.oldest or "-",
        Text(figures.parked, "bold red" if figures.parked_keys else ""),
        figures.rate,
    ]
    if leader is None:
        return [*cells, Text("none yet", "yellow"), "-", "-"]
    name = f"{printable(leader.name)}{' (silent)' if leader.silent else ''}"
    elector = Text(printable(leader.elector) or "-")
    return [*cells, Text(name, "yellow" if leader.silent else ""), date_and_clock(leader.since), elector]


Found = Sequence[tuple[str, Snapshot | OutboxError]]
"""The title of each outbox, and its state, or why that is not known."""
Happened = Sequence[tuple[str, HistoryEvent]]
"""What happened since the look before, each with the title of its outbox."""
Show = Callable[[datetime, Found, Happened], None]
"""Shows a look."""

_MOST_SHOWN = 50


def watch(chosen: Chosen, pause: float, *, json: bool) -> None:
    """Looks at outboxes until a signal, also while a database is unavailable for a while.

    Args:
        chosen: The outboxes.
        pause: Seconds from one look to the next.
        json: Whether to write each look as a JSON object in one line.

    Raises:
        OutboxError: The only outbox cannot be looked at, and later it cannot either.
    """
    histories: dict[str, History] = {}
    with StopSignals() as signals, Views() as watches, _shown(chosen, histories, json=json) as show:
        while not signals.requested.is_set():
            found = _look(chosen, watches)
            at = datetime.now(UTC)
            happened = [
                (title, event)
                for title, state in found
                for event in _add(histories.setdefault(title, History(pause)), at, state)
            ]
            show(at, found, happened)
            signals.requested.wait(pause)


def _look(chosen: Chosen, watches: Views) -> Found:
    try:
        return chosen.look(watches.snapshot)
    except DriverError as error:  # of one outbox alone
        if not error.retryable:
            raise
        return [(chosen.outboxes[0].title, error)]


def _add(history: History, at: datetime, state: Snapshot | OutboxError) -> Sequence[HistoryEvent]:
    return history.add(at, state) if isinstance(state, Snapshot) else history.failed(at, str(state))


@contextmanager
def _shown(chosen: Chosen, histories: dict[str, History], *, json: bool) -> Iterator[Show]:
    """Returns what shows looks: on a terminal that can redraw, in lines elsewhere."""
    console = output()
    if json:
        yield partial(_as_json, chosen)
    elif sys.stdout.isatty() and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield _Window(chosen, histories, live).show
    else:
        yield partial(_as_lines, chosen)


def _as_json(chosen: Chosen, _at: datetime, found: Found, happened: Happened) -> None:
    if not chosen.single:
        print_json(chosen.as_data(found, as_data), in_one_line=True)
        return
    [(_, state)] = found
    if isinstance(state, Snapshot):
        print_json(as_data(state), in_one_line=True)
    for _, each in happened:
        if each.code.startswith("database-"):
            print_message(f"{_time_of_day(each.at)} {printable(each.text)}")


def _as_lines(chosen: Chosen, at: datetime, found: Found, happened: Happened) -> None:
    """Prints a line for each event, and then one for each outbox that is known."""
    said = [(title, f"{each.code}: {printable(each.text)}") for title, each in happened]
    said += [(title, in_brief(state)) for title, state in found if isinstance(state, Snapshot)]
    stamp = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    for title, text in said:
        about = "" if chosen.single else f"{printable(title)}: "
        output().print(Text(f"{stamp} {about}{text}"), soft_wrap=True)


class _Window:
    """Redraws the state, the graphs of one outbox alone, and the last events of all."""

    def __init__(self, chosen: Chosen, histories: dict[str, History], live: Live) -> None:
        self._chosen = chosen
        self._histories = histories
        self._live = live
        self._happened: deque[tuple[str, HistoryEvent]] = deque(maxlen=_MOST_SHOWN)
        self._known: tuple[datetime, Snapshot] | None = None

    def show(self, at: datetime, found: Found, happened: Happened) -> None:
        self._happened.extend(happened)
        events = [self._line(*each) for each in self._happened]
        if not self._chosen.single:
            self._live.update(Screen(overview(found), None, events), refresh=True)
            return
        [(title, state)] = found
        snapshot = state if isinstance(state, Snapshot) else None
        if snapshot is not None:
            self._known = at, snapshot
        drawn = graphs(self._histories[title].points(), snapshot)
        brief = None if snapshot is None else Text(in_brief(snapshot))
        screen = Screen(self._state(snapshot), drawn, events, brief, NARROWEST_WINDOW)
        self._live.update(screen, refresh=True)

    def _state(self, snapshot: Snapshot | None) -> RenderableType:
        if snapshot is not None:
            return as_text(snapshot)
        if self._known is None:
            return Text("the database cannot be queried", "yellow")
        at, last = self._known
        return Group(
            Text(f"the state at {_time_of_day(at)}, as it is not known now", "yellow"), as_text(last)
        )

    def _line(self, title: str, event: HistoryEvent) -> tuple[str, str]:
        about = "" if self._chosen.single else f"{printable(title)}: "
        return _time_of_day(event.at), f"{about}{printable(event.text)}"


def _time_of_day(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S")
