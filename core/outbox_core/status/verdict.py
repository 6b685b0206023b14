"""What is said of an outbox first: whether all is well, and why not; without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outbox_core.status.health import REMARKS, Code, HealthProblem, problems
from outbox_core.status.snapshot import Snapshot
from outbox_core.text.printable import printable
from outbox_core.text.wording import clock


class State(StrEnum):
    """The state of an outbox, in one word; the worst first."""

    AWAY = "away"
    UNKNOWN = "unknown"
    PROBLEMS = "problems"
    WELL = "well"


@dataclass(frozen=True, slots=True)
class LastStatus:
    """What this process knows of an outbox."""

    snapshot: Snapshot | None = None  # its last known state; None if it was never seen
    at: datetime | None = None  # when that was; None if never
    error: str = ""  # why it cannot be seen now; empty if it can
    away_since: datetime | None = None  # since when it cannot be seen; None if it can


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is wrong, or worth knowing."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of an outbox in one sentence."""

    state: State  # in one word
    said: str
    """The sentence. It has no figures that change all the time, as it is read aloud when it changes."""
    short: str  # the same in few words, for titles
    reasons: tuple[Reason, ...] = ()  # what is wrong
    remarks: tuple[Reason, ...] = ()  # what is as somebody wants it, and worth knowing nevertheless


def verdict(known: LastStatus) -> Verdict:
    """Judges what is known of an outbox."""
    if known.snapshot is None or known.away_since is not None:
        if known.away_since is None:
            return Verdict(State.UNKNOWN, "Not checked yet.", "Not known yet")
        said = f"The database has not answered since {clock(known.away_since)}."
        if known.at is not None:  # one time, and not two that differ by a look
            said = f"The database does not answer: what is shown is of {clock(known.at)}."
        reason = _reason(HealthProblem(Code.DATABASE_UNREACHABLE, known.error))
        return Verdict(State.AWAY, said, "Database away", (reason,))
    found = problems(known.snapshot)
    wrong = tuple(_reason(each) for each in found if each.code not in REMARKS)
    remarks = tuple(_reason(each) for each in found if each.code in REMARKS)
    if not wrong:
        return Verdict(State.WELL, "All is well.", "All is well", (), remarks)
    count = "1 problem" if len(wrong) == 1 else f"{len(wrong)} problems"
    names = ", ".join(dict.fromkeys(each.code.replace("-", " ") for each in wrong))
    return Verdict(State.PROBLEMS, f"{count}: {names}.", count, wrong, remarks)


def _reason(problem: HealthProblem) -> Reason:
    return Reason(problem.code, printable(problem.message))
