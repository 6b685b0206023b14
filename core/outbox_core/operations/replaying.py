"""Stashes kept records again: what an operator is told before, and the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from time import monotonic

from outbox_api.base.errors import DriverError, OutboxError
from outbox_api.portable.replaying import PortableReplays
from outbox_api.seams.kept import Chosen
from outbox_api.seams.replay import Replay, ReplayState

from outbox_core.operations.journalled import (
    Operator,
    Outcome,
    action_of,
    journalled,
    not_noted,
    note_failure,
    operating,
)
from outbox_core.operations.replays import GivenUp, Pace, Prepared, Replayed, Wanted, is_name
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings
from outbox_core.text.wording import date_clock_and_zone

PAGE = 500
"""Records of one transaction at most."""

MOST_WAITING = 2_000
"""Rows that may wait in the outbox, and a replay goes on: live records wait behind so many, and a page."""

MOST_LISTED = 100
"""Entries of the journal that are read for a list of replays."""

_GLANCE = 0.02
"""Seconds between two looks at how many rows wait."""
_LONG, _RARE = 10.0, 60.0
"""Seconds after which it is told that they are too many, and told again."""


@operating()
def prepare_replay(settings: HarvestSettings, wanted: Wanted, *, read_only: bool = False) -> Prepared:
    """Looks what a replay would do; changes nothing.

    Args:
        settings: The outbox.
        wanted: What is wanted.
        read_only: Whether it is only to be told: then it waits for no purge that is under way.

    Raises:
        ConfigError: The choice cannot be read.
        OutboxError: It cannot be done: the name is used, or values were left out.
    """
    with closing(settings.dialect.create().replays(read_only=read_only)) as replays:
        chosen = replace(wanted.choice.chosen(replays.kept.now()), superseded=False)
        if found := replays.find(wanted.name):
            state = _goes_on(wanted, found)
            chosen = replace(chosen, since=state.since, until=state.until)
            rest = replace(chosen, through=state.through)
            return _prepared(replays, wanted, rest, state, resumed=True)
        if not read_only:
            chosen = replace(chosen, through=replays.newest())
        state = ReplayState(choice=wanted.digest, chosen=0, through=0, since=chosen.since, until=chosen.until)
        return _prepared(replays, wanted, chosen, state, resumed=False)


def _prepared(
    replays: PortableReplays, wanted: Wanted, chosen: Chosen, state: ReplayState, *, resumed: bool
) -> Prepared:
    kept = replays.kept.count(chosen, state.position)
    if kept.without_value:
        raise OutboxError(
            f"nothing was done: of {kept.records:,} records {kept.without_value:,} were kept without their "
            "value ('keep.without'), and would be sent as tombstones; choose others, by --topic, --since, "
            "--until or --where"
        )
    if not resumed:
        state = replace(state, chosen=kept.records, through=kept.last, position=max(0, kept.first - 1))
    ends = [
        next(iter(replays.kept.find(replace(chosen, through=position), position - 1, 1, whole=False)), None)
        for position in (kept.first, kept.last)
    ]
    return Prepared(wanted, chosen, state, resumed, kept, *ends)


def _goes_on(wanted: Wanted, found: Replay) -> ReplayState:
    if found.ended or not found.state:
        raise OutboxError(f"{_ended(found)}; another one needs another name")
    if found.state.choice != wanted.digest:
        raise OutboxError(
            f"nothing was done: the replay '{wanted.name}' began at {date_clock_and_zone(found.begun)} with "
            f"another choice ({found.subject}); repeat that to go on with it, or give another name"
        )
    return found.state


def _ended(found: Replay) -> str:
    ended = date_clock_and_zone(found.ended or found.begun)
    return f"nothing was done: the replay '{found.name}' ended at {ended} ({found.outcome})"


def list_replays(settings: HarvestSettings) -> Sequence[Replay]:
    """Returns replays, those under way first, then the newest first: ``MOST_LISTED`` at most; reads only."""
    with closing(settings.dialect.create().replays(read_only=True)) as replays:
        return replays.latest(MOST_LISTED)


@operating()
def give_up(settings: HarvestSettings, name: str, operator: Operator) -> GivenUp:
    """Ends a replay that is under way, or was interrupted: nothing more of it is stashed.

    What stashes it notices that within a page, and ends. The name cannot be used again.

    Raises:
        OutboxError: There is no such replay, or it has ended.
    """
    with closing(settings.dialect.create().replays()) as replays:
        if (found := replays.find(name) if is_name(name) else None) is None:
            raise OutboxError(f"nothing was done: there is no replay '{name:.100}'; see 'outbox journal'")
        if found.ended:
            raise OutboxError(_ended(found))
        with journalled(settings, Verb.GIVE_UP, f"replay {name}", operator, at_once=True) as outcome:
            found = replays.give_up(name)
            if found is None or found.state is None:
                raise OutboxError(_ended(found) if found else f"nothing was done: replay '{name}' is gone")
            outcome.text = found.state.progress
    return GivenUp(name, found.state.done, found.state.chosen, outcome.unnoted)


@operating()
def replay(settings: HarvestSettings, prepared: Prepared, operator: Operator, pace: Pace) -> Replayed:
    """Stashes the records, or goes on with that, until all are stashed or ``pace.wait`` says to stop.

    It may be ended at any time, and called again with the same choice: no record is left out or stashed
    twice. The journal has one entry of the replay, which ends with it, and one of each further call.

    Raises:
        OutboxError: Another one with this name has begun meanwhile, or the database refuses.
    """
    wanted = prepared.wanted
    with closing(settings.dialect.create().replays()) as replays:
        begun = not prepared.resumed and _begin(replays, settings, prepared, operator)
        if not begun and (found := replays.find(wanted.name)):
            state = _goes_on(wanted, found)
            chosen = replace(prepared.chosen, since=state.since, until=state.until)
            prepared = replace(prepared, state=state, chosen=chosen)
        with _noted(settings, prepared, operator, begun=begun) as outcome:
            done = _steps(replays, prepared, pace)
            outcome.text = done.outcome or f"stopped: {done.state.progress}"
    return replace(done, unnoted=outcome.unnoted)


def _begin(
    replays: PortableReplays, settings: HarvestSettings, prepared: Prepared, operator: Operator
) -> bool:
    """Notes that it begins; returns whether nobody else was first."""
    wanted = prepared.wanted
    try:
        action = action_of(replays.journal, Verb.REPLAY, wanted.subject(settings.key_names), operator)
        return replays.begin(wanted.name, action, prepared.state)
    except DriverError as error:
        raise not_noted(error) from error


@contextmanager
def _noted(
    settings: HarvestSettings, prepared: Prepared, operator: Operator, *, begun: bool
) -> Iterator[Outcome]:
    """Notes that a replay goes on; that it begins is noted already, in the entry that has its progress."""
    if begun:
        try:
            yield Outcome()
        except Exception as error:
            note_failure(settings, Verb.REPLAY, f"{prepared.wanted.name}: failed", operator, error)
            raise
        return
    subject = f"{prepared.wanted.name}: goes on behind position {prepared.state.position}"
    with journalled(settings, Verb.REPLAY, subject, operator) as outcome:
        yield outcome


def _steps(replays: PortableReplays, prepared: Prepared, pace: Pace) -> Replayed:
    wanted, state = prepared.wanted, prepared.state
    page = PAGE if pace.rate is None else max(1, min(PAGE, pace.rate // 10))
    begin, before = monotonic(), state.done
    while True:
        due = 0.0 if pace.rate is None else begin + (state.done - before) / pace.rate - monotonic()
        if pace.wait(max(0.0, due)) or _stopped_while_full(replays, pace):
            return Replayed(state)
        found = replays.step(wanted.name, prepared.chosen, page, wanted.to)
        if found.state:
            pace.advance(found.state.done - state.done)
            state = found.state
        if found.ended:
            return Replayed(state, found.outcome)


def _stopped_while_full(replays: PortableReplays, pace: Pace) -> bool:
    """Waits until few rows wait in the outbox; returns whether to stop."""
    told = monotonic() + _LONG
    while replays.waiting(MOST_WAITING + 1) > MOST_WAITING:
        if pace.wait(_GLANCE):
            return True
        if monotonic() >= told:
            told += _RARE
            pace.held_up()
    return False
