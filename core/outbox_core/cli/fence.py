"""``outbox fence``: shows who holds the outbox, and takes it away from a leader."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, NamedTuple

import typer
from outbox_api.seams.fence import LaneStatus, TransactionalLane
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, Group
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox, watched_outboxes
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import Forgotten, Verb
from outbox_core.operations.fence import held_by, held_token, lane_list
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable
from outbox_core.text.wording import date_clock_and_zone, duration

_Notes = Mapping[int, TransactionalLane]
"""Lane → its note in the fence."""


def show(
    context: typer.Context, file: FileOption = None, outbox: OutboxOption = None, json: JsonOption = False
) -> None:
    """Show who holds each lane of the outbox, under which token, and since when.

    Queries only the database. Of a lane that publishes in transactions (exactly-once delivery), 'transacting'
    is the number of lanes at that time. It stays if the lane fails: its successor then searches the log for
    its batches. So lanes that the present leader does not have may be listed too.
    """
    chosen = watched_outboxes(context, file, outbox)
    chosen.show(chosen.look(_Holders.of), _Holders.as_data, _Holders.as_text, json=json)


class _Holders(NamedTuple):
    """Who holds the lanes of an outbox, and the notes of its lanes that publish in transactions."""

    outbox: str
    held: Sequence[LaneStatus]
    noted: _Notes

    @classmethod
    def of(cls, settings: HarvestSettings) -> "_Holders":
        with closing(settings.dialect.create().watch()) as view:
            return cls(settings.outbox, view.lane_statuses(), view.transactional_lanes())

    @property
    def former(self) -> _Notes:
        present = {each.fence.lane for each in self.held}
        return {lane: note for lane, note in self.noted.items() if lane not in present}

    def as_data(self) -> dict[str, Any]:
        lanes = [_as_data(lane, self.noted) for lane in self.held]
        return {"outbox": self.outbox, "lanes": lanes, "former": _noted_as_data(self.former)}

    def as_text(self) -> RenderableType:
        return _as_table(self.held, self.noted, self.former) if self.held else "nobody has ever led"


def bump(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Raise the fence's token, so that the present leader is fenced at once.

    Use it for a leader that does harm and that you cannot stop on its machine. Once this command returns,
    that process can change nothing in the outbox. The election does not change: the process that it names,
    the same one unless it has ended, leads again within a second or two. Nothing is lost; records in flight
    are published again, unless delivery is exactly-once.
    """
    settings = operated_outbox(context, file, outbox)
    seen = None
    if not yes:
        held = _Holders.of(settings).held
        seen = held_token(held)
        holder = printable(held_by(held)) or "nobody yet"
        about = Text(f"outbox {printable(settings.outbox)} is held by {holder}.\n{Verb.RAISE_FENCE.effect()}")
        confirm(about, Verb.RAISE_FENCE.about.question, yes=yes)
    raised = operations.raise_fence(settings, operator(reason, yes=yes), seen)
    tell_unnoted(raised.unnoted)
    if json:
        told = {"token": raised.token, "lanes": raised.lanes, "holder": raised.holder}
        print_json({"outbox": settings.outbox, **told})
        return
    said = f"the token is {raised.token} now, raised by {raised.holder}"
    output().print(said, soft_wrap=True)
    if raised.fenced:
        fenced = printable(raised.fenced)
        print_message(f"fenced: {fenced}. The process that the election names acquires again by itself.")


def forget(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which lanes it concerns, and change nothing.")
    ] = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Treat all rows of lanes whose checkpoint is lost as unpublished.

    With exactly-once delivery the broker stores a checkpoint of each lane: the batches that it has published
    and not purged yet. A lane that has published and whose checkpoint is gone refuses to start. After this
    command all its rows are delivered, up to two batches of each lane perhaps for a second time; nothing is
    lost.

    It raises the token like 'outbox fence bump'. A lane that has a checkpoint still uses it, unless the
    number of lanes, the delivery or the publisher's settings change at the same time. After an upgrade or a
    move to another Kafka cluster it is not needed: see 'outbox explain forgetting-checkpoints'.
    """
    settings = operated_outbox(context, file, outbox)
    done = Forgotten(notes=_Holders.of(settings).noted)
    if done.notes and not dry_run:
        noted = f"the fence notes transactions of {lane_list(done.notes)}."
        about = f"outbox {printable(settings.outbox)}: {noted}"
        confirm(Text(f"{about}\n{Verb.FORGET.effect()}"), Verb.FORGET.about.question, yes=yes)
        done = operations.forget(settings, operator(reason, yes=yes))
        tell_unnoted(done.unnoted)
    if json:
        told = {"dry_run": dry_run, "token": done.token, "holder": done.holder}
        print_json({"outbox": settings.outbox, **told, "lanes": _noted_as_data(done.notes)})
    elif not done.notes:
        output().print("the fence notes no lane that publishes in transactions")
    elif done.token is None:
        output().print(f"would be treated as unpublished: the rows of {lane_list(done.notes)}")
    else:
        output().print(f"treated as unpublished from now on: the rows of {lane_list(done.notes)}")
        raised = f"The token is {done.token} now, raised by {done.holder}."
        print_message(f"{raised} The leader restarts its lanes by itself.")


def _noted_as_data(noted: _Notes) -> list[dict[str, Any]]:
    return [{"lane": lane, **_note_as_data(note)} for lane, note in noted.items()]


def _note_as_data(note: TransactionalLane | None) -> dict[str, Any]:
    if note is None:
        return {"transacting": None, "sender": None, "location": None}
    return {"transacting": note.lanes, "sender": note.sender, "location": note.location}


def _as_data(lane: LaneStatus, noted: _Notes) -> dict[str, Any]:
    return {
        "lane": lane.fence.lane,
        "lanes": lane.fence.lanes,
        "token": lane.fence.token,
        "epoch": lane.fence.epoch,
        "holder": lane.holder,
        "since": lane.since.isoformat(),
        "heartbeat": lane.heartbeat_at and lane.heartbeat_at.isoformat(),
        "heartbeat_age_seconds": lane.age,
        **_note_as_data(noted.get(lane.fence.lane)),
    }


def _as_table(held: Sequence[LaneStatus], noted: _Notes, former: _Notes) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lane", "of", "token", "epoch"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("holder", "since", "last heartbeat", "transactional"):
        table.add_column(heading)
    for lane in held:
        fence = lane.fence
        numbers = (str(number) for number in (fence.lane, fence.lanes, fence.token, fence.epoch))
        since, heartbeat = date_clock_and_zone(lane.since), "none yet"
        if lane.age is not None:
            heartbeat = f"{duration(lane.age)} ago"
        table.add_row(
            *numbers, Text(printable(lane.holder)), since, heartbeat, _lanes_text(noted.get(fence.lane))
        )
    for number, former_note in former.items():
        table.add_row(str(number), *"-----", _lanes_text(former_note), style="dim")
    return table


def _lanes_text(note: TransactionalLane | None) -> str:
    return "-" if note is None else f"of {note.lanes}"


COMMAND = Group(
    "fence",
    """See who holds the outbox, and take it away from a leader that does harm.

    The fence is a table beside the outbox with a row for each lane. Every mark, purge and reset must match
    the token in that row, and each new leader raises it. So a process with an older token can change nothing.
    """,
    (
        Command(show, ("outbox fence show -f outbox.yaml", "outbox fence show --json | jq '.lanes[].token'")),
        Command(bump, ("outbox fence bump -f outbox.yaml", "outbox fence bump --yes   # in scripts")),
        Command(
            forget, ("outbox fence forget -f outbox.yaml --dry-run", "outbox fence forget -f outbox.yaml")
        ),
    ),
)
