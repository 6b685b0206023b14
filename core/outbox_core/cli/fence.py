"""``outbox fence``: who may work on the outbox, and how to end that."""

import getpass
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from outbox_sdk.dialect import LaneStatus, OutboxTable, TransactionalLane
from outbox_sdk.errors import LeadershipLost
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.cli.command import Command, Group
from outbox_core.cli.consent import YesOption, ask
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, quiet
from outbox_core.cli.terminal import note, output, plain, print_json
from outbox_core.config import HarvestSettings
from outbox_core.config.duration import format_duration

_EFFECT = (
    "The present leader is fenced: it can mark, purge and reset nothing from now on, notices it at its next "
    "statement and stops its lanes. Whoever the election names then raises the token again and goes on, as a "
    "rule the same process, within a second or two. Nothing is lost; what was in flight is published again, "
    "unless delivery is exactly-once."
)
_FORGETTING = (
    "They are taken as having left nothing in the log: rows that are marked and not purged are delivered, "
    "perhaps for a second time. Nothing is lost. This is for lanes that refuse to begin because the broker "
    "has no checkpoint of them; while it has one there is nothing to be gained. End every harvester of an "
    "earlier version first: under what name it publishes is forgotten too, so nobody could stop it."
)
_Notes = Mapping[int, TransactionalLane]
"""Lane → what the fence notes of it."""
_TRIES = 5
"""How often the token is raised when others raise it too: a leader whose lanes refuse to begin does."""


def show(context: typer.Context, file: FileOption = None, json: JsonOption = False) -> None:
    """Show who holds each lane of the outbox, under which token, and since when.

    A lane that publishes in transactions, for exactly-once delivery, is noted as one of so many lanes under
    'transacting'. The note stays when the lane dies, and tells its successor to look for what it has left
    in the log; so lanes that the present leader does not have can be listed too.

    Asks only the database. The reading of each lane is shown by 'outbox status'.
    """
    settings = _settings(context, file)
    with closing(settings.dialect.create().connect()) as table:
        held, noted = table.lane_statuses(), table.transactional_lanes()
    former = {lane: each for lane, each in noted.items() if lane not in {each.fence.lane for each in held}}
    if json:
        print_json(
            {
                "outbox": settings.outbox,
                "lanes": [_as_data(lane, noted) for lane in held],
                "former": _noted_as_data(former),
            }
        )
    elif held:
        output().print(_as_table(held, noted, former))
    else:
        output().print("nobody has ever led")


def bump(
    context: typer.Context, file: FileOption = None, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Raise the fence's token, so that whoever leads now is fenced at once.

    For a leader that does harm or hangs and cannot be stopped where it runs: from the moment this command
    returns it can change nothing in the outbox any more. The election is left alone, so the process that
    it names, the same one unless it has died, acquires again and goes on within a second or two. Nothing is
    lost; records that were in flight are published again, unless delivery is exactly-once.
    """
    settings = _settings(context, file)
    with closing(settings.dialect.create().connect()) as table:
        held = table.lane_statuses()
        holder = f"{plain(held[0].holder)}, token {held[0].fence.token}" if held else "nobody yet"
        about = Text(f"outbox {settings.outbox} is held by {holder}.\n{_EFFECT}")
        ask(about, "Raise the token?", yes=yes)
        lanes, name = _lanes(held, settings), _operator()
        token = table.bump(lanes, name)
    if json:
        print_json({"outbox": settings.outbox, "token": token, "lanes": lanes, "holder": name})
        return
    output().print(f"the token is {token} now, raised by {name}", markup=False, soft_wrap=True)
    if held:
        note(f"fenced: {holder}. The process that the election names acquires again by itself.")


def forget(
    context: typer.Context,
    file: FileOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which lanes are noted, and change nothing.")
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take lanes whose checkpoint the broker has lost as having left nothing in the log.

    For exactly-once delivery the broker keeps a checkpoint of each lane: what it has published and not purged
    yet. A lane that is noted to publish in transactions and has no checkpoint (it has expired, or this is
    another broker) refuses to begin, as nobody can tell which of the marked rows are in the log. After this
    command they are all delivered, perhaps for a second time; nothing is lost.

    Ends the notes of all lanes, also of those that an earlier leader had, and raises the token as
    'outbox fence bump' does, so that whoever leads begins anew. A lane that does have a checkpoint still
    heeds it, provided that neither the number of lanes nor the delivery nor the publisher's settings are
    changed at the same time.

    A lane that refuses after an upgrade, or right after 'outboxTable' was written in another way (with its
    schema, say), needs none of this: write it as it was before until the lane has begun once.
    """
    settings = _settings(context, file)
    token, name = None, _operator()
    with closing(settings.dialect.create().connect()) as table:
        noted = table.transactional_lanes()
        if noted and not dry_run:
            about = f"outbox {settings.outbox}: noted to publish in transactions are {_named(noted)}."
            ask(Text(f"{about}\n{_FORGETTING}"), "Forget what they may have published?", yes=yes)
            token = _end_notes(table, settings, name)
    if json:
        said = {"dry_run": dry_run, "token": token, "holder": None if token is None else name}
        print_json({"outbox": settings.outbox, **said, "lanes": _noted_as_data(noted)})
    elif not noted:
        output().print("no lane is noted to publish in transactions")
    elif token is None:
        output().print(f"would be taken as having left nothing in the log: {_named(noted)}")
    else:
        output().print(f"taken as having left nothing in the log: {_named(noted)}")
        note(f"The token is {token} now, raised by {name}. Whoever the election names acquires by itself.")


def _end_notes(table: OutboxTable, settings: HarvestSettings, name: str) -> int:
    """Ends the notes of all lanes; returns the token that was raised for it."""
    tries = 0
    while True:
        tries += 1
        lanes = _lanes(table.lane_statuses(), settings)
        token = table.bump(lanes, name)
        try:
            for lane in table.transactional_lanes():
                table.set_transactional(table.enter(lane, lanes, token), None)
        except LeadershipLost:
            if tries == _TRIES:
                raise
        else:
            return token


def _lanes(held: Sequence[LaneStatus], settings: HarvestSettings) -> int:
    """Returns the present number of lanes."""
    return held[0].fence.lanes if held else settings.limits.send_concurrency


def _settings(context: typer.Context, file: Path | None) -> HarvestSettings:
    invocation: Invocation = context.obj
    return quiet(invocation.settings(file)).harvest


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as containers have them
        user = "somebody"
    return f"operator {user} at {socket.gethostname()}"


def _named(noted: _Notes) -> str:
    return f"{'lane' if len(noted) == 1 else 'lanes'} {', '.join(map(str, noted))}"


def _noted_as_data(noted: _Notes) -> list[dict[str, Any]]:
    return [{"lane": lane, **_note_as_data(note)} for lane, note in noted.items()]


def _note_as_data(note: TransactionalLane | None) -> dict[str, Any]:
    if note is None:
        return {"transacting": None, "sender": None, "place": None}
    return {"transacting": note.lanes, "sender": note.sender, "place": note.location}


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
        since = lane.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        heartbeat_at = (
            "none yet" if lane.age is None else f"{format_duration(max(0.0, round(lane.age, 1)))} ago"
        )
        table.add_row(*numbers, Text(plain(lane.holder)), since, heartbeat_at, _of(noted.get(fence.lane)))
    for number, former_note in former.items():
        table.add_row(str(number), *"-----", _of(former_note), style="dim")
    return table


def _of(note: TransactionalLane | None) -> str:
    return "-" if note is None else f"of {note.lanes}"


GROUP = Group(
    "fence",
    """See who holds the outbox, and take it away from a leader that does harm.

    The fence is a row for each lane beside the outbox. Every mark, purge and reset must match its token,
    which each new leader raises: whoever holds an older one can change nothing.
    """,
    (
        Command(show, ("outbox fence show -f outbox.yaml", "outbox fence show --json | jq '.lanes[].token'")),
        Command(bump, ("outbox fence bump -f outbox.yaml", "outbox fence bump --yes   # in scripts")),
        Command(
            forget, ("outbox fence forget -f outbox.yaml --dry-run", "outbox fence forget -f outbox.yaml")
        ),
    ),
)
