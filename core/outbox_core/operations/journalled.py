"""Notes what an operator does in the journal of the outbox: before it is done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from outbox_api.base.errors import AccessDenied, ConfigError, DriverError, OutboxError, RolledBack
from outbox_api.portable.journal import PortableJournal
from outbox_api.seams.journal import ALL_ENTRIES, Action, ChosenEntries, Entry

from outbox_core.operations.reason import check_reason, check_text
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import OPERATOR
from outbox_core.text.moment import parse_moment

_LONGEST_HOLDER = 400
"""Characters; every fence can hold so many."""


UNCERTAIN = "it may be done nevertheless: see the journal"
"""Said of an action whose answer was lost."""


@contextmanager
def operating() -> Iterator[None]:
    """Says of a user who lacks rights which role has them, and not how a harvester's user gets its own."""
    try:
        yield
    except AccessDenied as error:
        if not error.lacks:
            raise
        cure = "this needs an operator's account, see docs/credentials.md#roles"
        raise AccessDenied(f"{error.lacks}; {cure}", retryable=error.retryable) from error


@dataclass(frozen=True, slots=True)
class Operator:
    """Who does something to an outbox, and why."""

    name: str
    via: str  # by which way: cli or http
    reason: str = ""  # why; may be empty

    def __post_init__(self) -> None:
        check_reason(self.reason)

    @property
    def holder(self) -> str:
        """The holder that the fence names once this operator has raised it; cut where it is long."""
        return f"{OPERATOR}{self.name}"[:_LONGEST_HOLDER]


@dataclass(slots=True)
class Outcome:
    """What came of an action."""

    text: str = "done"  # for the journal; set it once the action is done
    unnoted: str = ""  # why the journal does not have the text, although the action is done; empty if it has


@contextmanager
def journalled(
    settings: HarvestSettings, verb: Verb, subject: str, operator: Operator, *, at_once: bool = False
) -> Iterator[Outcome]:
    """Notes an action in the journal before the block, and afterwards its outcome or its error.

    An error of the block is raised as it is; a retryable one also says that the action may be done, or that
    nothing was done, if the database says so or the block is ``at_once`` one transaction. If only the outcome
    cannot be noted, nothing is raised, as the action is done: ``unnoted`` says why.

    Raises:
        DriverError: The action cannot be noted; the block is not executed.
    """
    journal, entry = _begin(settings, operator, verb, subject)
    outcome = Outcome()
    with closing(journal):
        try:
            yield outcome
        except Exception as error:
            undone = error if at_once and isinstance(error, RolledBack) else None
            # The answer of a database may have been lost that has done it.
            uncertain = undone is None and isinstance(error, DriverError) and error.retryable
            outcome.text = _failure(error, uncertain=uncertain)
            _end(settings, journal, entry, outcome)
            if undone is not None:
                raise RolledBack(f"nothing was done: {undone}", retryable=undone.retryable) from error
            if uncertain:
                raise DriverError(f"{error}; {UNCERTAIN}", retryable=True) from error
            raise
        _end(settings, journal, entry, outcome)


def note_failure(
    settings: HarvestSettings, verb: Verb, subject: str, operator: Operator, error: Exception
) -> None:
    """Notes what has ended an action whose own entry is to stay as it is, if that can be noted."""
    with suppress(OutboxError):  # the error itself is told in any case
        journal, entry = _begin(settings, operator, verb, subject)
        with closing(journal):
            journal.end(entry, _failure(error, uncertain=False))


def entries(
    settings: HarvestSettings, limit: int = 100, chosen: ChosenEntries = ALL_ENTRIES
) -> Sequence[Entry]:
    """Returns the last entries of the journal that are chosen, the newest first; reads only."""
    with closing(settings.dialect.create().journal(read_only=True)) as journal:
        return journal.entries(limit, chosen)


def entries_of(
    operator: str = "", verb: str = "", since: str = "", until: str = "", after: str = ""
) -> ChosenEntries:
    """Returns which entries texts choose: times in ISO 8601, or how long ago by this process's clock.

    Raises:
        ConfigError: One cannot be read.
    """
    now = datetime.now(UTC)
    try:
        moments = [parse_moment(text, now) if text else None for text in (since, until)]
        last = UUID(after) if after else None
    except ValueError as error:
        raise ConfigError(f"entries of the journal: {error}") from None
    check_text(operator + verb)
    return ChosenEntries(operator=operator, verb=verb, since=moments[0], until=moments[1], after=last)


def _begin(
    settings: HarvestSettings, operator: Operator, verb: Verb, subject: str
) -> tuple[PortableJournal, UUID]:
    try:
        journal = settings.dialect.create().journal()
        try:
            return journal, journal.begin(action_of(journal, verb, subject, operator))
        except BaseException:
            journal.close()
            raise
    except DriverError as error:
        raise not_noted(error) from error


def action_of(journal: PortableJournal, verb: Verb, subject: str, operator: Operator) -> Action:
    """Returns what the journal notes, with the user that the database knows."""
    # Over HTTP it is the harvester's user, whoever asks.
    user = journal.user() if operator.via == "cli" else ""
    who = f"{operator.name}, database user {user}" if user else operator.name
    return Action(who, operator.via, verb, subject, operator.reason)


def not_noted(error: DriverError) -> DriverError:
    """Returns the error of an action that the journal could not note, so that nothing was done."""
    message = f"nothing was done, as the journal cannot note it: {error}"
    return type(error)(message, retryable=error.retryable)


def _end(settings: HarvestSettings, journal: PortableJournal, entry: UUID, outcome: Outcome) -> None:
    try:
        try:
            journal.end(entry, outcome.text)
        except DriverError as error:
            if not error.retryable:
                raise
            # The connection was idle during the action, and may have been closed meanwhile.
            with closing(settings.dialect.create().journal()) as anew:
                anew.end(entry, outcome.text)
    except OutboxError as error:
        outcome.unnoted = f"the journal lacks the outcome ({outcome.text}): {error}"


def _failure(error: Exception, *, uncertain: bool) -> str:
    if not isinstance(error, OutboxError):
        return f"failed: {type(error).__name__}"  # a defect, whose text may contain anything
    return f"{'not known whether it was done' if uncertain else 'failed'}: {error}"
