"""Measures for how long nobody leads after an incident, for each elector, beside what its session permits.

By default the election alone: two processes that do nothing but take part. With ``--whole``, two harvesters
of an outbox into which an application writes, what a consumer of the records hears, and the audit of all that
was written. Each elector runs with a short session that its service permits. Prints a table in Markdown.

``stopped`` counts from the order to stop, draining included, and the others from the incident. ``service
restarted`` crashes the elector's service and starts it again: of the election alone it counts from when the
leader gave up, and of whole harvesters from the crash, until leadership has settled; 0 if it never moved.

Twenty rounds of all elections alone take about 15 minutes; of whole harvesters, an elector's five incidents
take about 20 minutes, so choose with ``--electors`` and ``--incidents``.

    python -m bench.takeovers --rounds 20
    python -m bench.takeovers --whole --delivery exactly-once --electors lease neli-kafka
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from outbox_api.election import elapsed
from outbox_testkit.conformance.contender import Contender
from outbox_testkit.conformance.election import Election

from bench.electors import ELECTORS, BenchElector, Servers
from bench.whole_takeovers import INCIDENTS as WHOLE_INCIDENTS
from bench.whole_takeovers import Outcome, measure

PATIENCE = 60.0
SETTLED = 0.5
"""Seconds for which a round's election rests before the incident."""


@dataclass
class Gap:
    """How one round went.

    Attributes:
        seconds: For how long nobody led.
        overlaps: How often two processes led at once, as far as they can tell.
    """

    seconds: float
    overlaps: int


@dataclass
class Round:
    """One election with a leader and a standby."""

    elector: BenchElector
    election: Election
    leader: Contender
    standbys: list[Contender] = field(default_factory=list)


def begin(elector: BenchElector) -> Round:
    """Starts two processes, and waits until one leads and nothing has happened for a moment."""
    election = Election(elector.election())
    entered = election.enter(2)
    leader = settle(election, SETTLED)
    return Round(elector, election, leader, [each for each in entered if each is not leader])


def stop(one: Round) -> float:
    """The leader is told to stop."""
    at = elapsed()
    one.leader.stop()
    return one.election.hear("acquired", PATIENCE).at - at


def kill(one: Round) -> float:
    """The leader is killed."""
    at = one.leader.kill()
    return one.election.hear("acquired", PATIENCE).at - at


def kill_and_replace(one: Round) -> float:
    """The leader is killed, and another process joins during its session."""
    at = one.leader.kill()
    time.sleep(min(3.0, one.elector.session / 2))
    one.election.enter()
    return one.election.hear("acquired", PATIENCE).at - at


def freeze(one: Round) -> float:
    """The leader stands still for longer than its session."""
    at = elapsed()
    one.leader.process.send_signal(signal.SIGSTOP)
    successor = one.election.hear("acquired", PATIENCE)
    time.sleep(max(0.0, at + 2 * one.elector.session - elapsed()))
    one.leader.process.send_signal(signal.SIGCONT)
    one.election.hear("fenced", PATIENCE, one.leader)
    return successor.at - at


INCIDENTS: dict[str, Callable[[Round], float]] = {
    "stopped": stop,
    "killed": kill,
    "killed and replaced": kill_and_replace,
    "frozen": freeze,
}


def play(elector: BenchElector, incident: str) -> Gap:
    """Plays one round."""
    one = begin(elector)
    try:
        seconds = INCIDENTS[incident](one)
        one.election.hear_all(SETTLED)
        return Gap(seconds, overlaps(one, judged=incident != "frozen"))
    finally:
        one.election.close()


def overlaps(one: Round, *, judged: bool = True) -> int:
    """Returns 1 if two processes led at once; who is frozen cannot say that it no longer leads."""
    try:
        if judged:
            one.election.assert_orderly()
    except AssertionError as error:
        print(f"{one.elector.driver}: {error}", file=sys.stderr)
        return 1
    return 0


def play_restarts(elector: BenchElector, rounds: int) -> list[Gap]:
    """Crashes the elector's service and starts it again at once, with one election."""
    one = begin(elector)
    gaps = []
    try:
        for _ in range(rounds):
            heard = len(one.election.told)
            elector.service.kill()
            elector.service.start()
            settle(one.election, max(4.0, 2 * elector.session))
            told = one.election.told[heard:]
            lost = next((each.at for each in told if each.what == "fenced"), None)
            led = max((each.at for each in told if each.what == "acquired"), default=None)
            gaps.append(Gap(led - lost if led is not None and lost is not None else 0.0, overlaps(one)))
    finally:
        one.election.close()
    return gaps


def settle(election: Election, seconds: float) -> Contender:
    """Waits until somebody leads and nothing has happened for some seconds; returns who leads."""
    deadline = elapsed() + PATIENCE
    while election.hear_all(seconds) or leader_of(election) is None:
        assert elapsed() < deadline, "nobody leads"
    leader = leader_of(election)
    assert leader is not None
    return leader


def leader_of(election: Election) -> Contender | None:
    """Returns the contender that leads."""
    changes = [told for told in election.told if told.what in ("acquired", "revoked", "fenced")]
    last = {told.contender: told.what for told in changes}
    return next((contender for contender, what in last.items() if what == "acquired"), None)


def election_alone(elector: BenchElector, incident: str, rounds: int, parallel: int) -> list[Gap]:
    """Plays the rounds of one incident."""
    if incident == "service restarted":
        return play_restarts(elector, rounds)
    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda _: play(elector, incident), range(rounds)))


def cells(numbers: Sequence[float]) -> str:
    """Writes median and worst."""
    return f"{statistics.median(numbers):.2f} | {max(numbers):.2f}"


def bound(elector: BenchElector, incident: str) -> str:
    """Returns the seconds for which nobody can lead, by the elector's session."""
    return "0" if incident in ("stopped", "service restarted") else f"{elector.session:g}"


def alone_row(elector: BenchElector, incident: str, gaps: Sequence[Gap]) -> str:
    """Writes a row of the table of elections."""
    seconds = [gap.seconds for gap in gaps]
    return (
        f"| {elector.driver} | {incident} | {len(gaps)} | {bound(elector, incident)} | {cells(seconds)} | "
        f"{sum(gap.overlaps for gap in gaps)} |"
    )


def whole_row(elector: BenchElector, incident: str, outcome: Outcome) -> str:
    """Writes a row of the table of whole harvesters."""
    audit = outcome.audit
    assert audit is not None
    return (
        f"| {elector.driver} | {incident} | {len(outcome.silences)} | {bound(elector, incident)} | "
        f"{cells(outcome.unled)} | {cells(outcome.silences)} | {audit.sent:,} | "
        f"{audit.lost + audit.foreign} | "
        f"{audit.out_of_order} | {audit.repeated} | {outcome.fenced} | {outcome.stolen} |"
    )


ALONE_HEAD = "| elector | the leader | rounds | session | median s | worst s | overlaps |"
WHOLE_HEAD = (
    "| elector | the leader | rounds | session | until led, median s | worst s "
    "| silence, median s | worst s | records | lost | out of order | repeated "
    "| stopped by the fence | changed behind the fence |"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--electors", nargs="+", default=list(ELECTORS), choices=list(ELECTORS))
    parser.add_argument(
        "--incidents", nargs="+", default=list(WHOLE_INCIDENTS), choices=list(WHOLE_INCIDENTS)
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parallel", type=int, default=2, help="elections of one elector at once")
    parser.add_argument("--whole", action="store_true", help="whole harvesters, one after the other")
    parser.add_argument("--delivery", default="at-least-once", choices=["at-least-once", "exactly-once"])
    arguments = parser.parse_args()
    began = time.monotonic()
    head = WHOLE_HEAD if arguments.whole else ALONE_HEAD
    rows: dict[str, list[str]] = {name: [] for name in arguments.electors}
    with Servers() as servers:
        electors = {name: ELECTORS[name](servers) for name in arguments.electors}
        for elector in electors.values():
            _ = elector.service  # starts it

        def play_one(elector: BenchElector, incident: str) -> str:
            if arguments.whole:
                outcome = measure(elector, arguments.delivery, incident, arguments.rounds, say)
                return whole_row(elector, incident, outcome)
            gaps = election_alone(elector, incident, arguments.rounds, arguments.parallel)
            return alone_row(elector, incident, gaps)

        def run(name: str) -> None:
            for incident in arguments.incidents:
                try:
                    row = play_one(electors[name], incident)
                except AssertionError as error:  # the other rows are worth having
                    row = f"| {name} | {incident} | failed: {str(error).splitlines()[0]} |"
                rows[name].append(row)
                say(row)

        with ThreadPoolExecutor(1 if arguments.whole else len(electors)) as pool:
            list(pool.map(run, electors))
    print(f"{head}\n|{'---|' * (head.count('|') - 1)}")
    print("\n".join(row for each in rows.values() for row in each))
    say(f"{time.monotonic() - began:.0f} s")


_saying = threading.Lock()


def say(text: str) -> None:
    """Reports progress."""
    with _saying:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
