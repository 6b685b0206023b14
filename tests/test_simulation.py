"""The simulation in small: fresh histories, old failures, every mutant, and that all can be repeated."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections import Counter, deque
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from outbox_api import Batch, MarkedRecord
from outbox_api.election.leadership import Leadership, LeadershipEvent
from outbox_core.delivery.checkpoint import encode

from .simulation.audit import Audit
from .simulation.checkpoints import check_attempted, check_published
from .simulation.database import Database
from .simulation.log import Log, Publication
from .simulation.mutants import BROKEN_SERVERS, BY_NAME, MUTANTS, SELDOM, TRANSFORMED, listing
from .simulation.runs import Event, hunts, many, report, run
from .simulation.scenario import Mode
from .simulation.scheduler import Scheduler
from .simulation.tables import Row
from .simulation.trail import Entry, Session, Violation

pytestmark = pytest.mark.timeout(600)
"""It computes for as long as the machine takes."""

JOBS = 2
HISTORIES = 3
"""Of each mode."""
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def children_find_the_simulation(monkeypatch):
    """However pytest was started: a child that cannot import it would be replaced for ever."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_fresh_histories_break_no_invariant():
    first = secrets.randbelow(1 << 40)
    print(f"seeds from {first}")  # noqa: T201 - shown when it fails
    seeds = [(first + number, mode) for number in range(HISTORIES) for mode in Mode]
    failed = [each for each in many(seeds, jobs=1) if each.invariant]
    assert not failed, report(failed[0])


@pytest.mark.parametrize("transformed", TRANSFORMED, ids=lambda each: each.name)
def test_fresh_histories_with_transforms_break_no_invariant(transformed):
    first = secrets.randbelow(1 << 40)
    print(f"seeds from {first}")  # noqa: T201 - shown when it fails
    for seed in range(first, first + HISTORIES):
        history = run(seed, transformed)
        assert not history.invariant, report(history, transformed)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.SPARK])
def test_histories_do_what_their_mode_is_about(mode):
    counts = sum((run(seed, mode=mode).counts for seed in (17, 21, 30)), start=Counter())
    assert bool(counts["transactions committed"]) == (mode is not Mode.AT_LEAST_ONCE)
    assert mode is Mode.SWITCHING or bool(counts["remarks"]) == (mode is Mode.AT_LEAST_ONCE)
    assert bool(counts["recovered"]) == (mode is not Mode.AT_LEAST_ONCE)
    assert bool(counts["transactions torn"]) == (mode is not Mode.AT_LEAST_ONCE)


def test_histories_of_spark_do_what_they_are_about():
    histories = [run(seed, mode=Mode.SPARK) for seed in range(4, 24)]
    counts = sum((history.counts + history.faults for history in histories), start=Counter())
    endings = ("fenced", "an older copy", "another query", "rows are missing", "available")
    assert [each for each in endings if not any(each in told for told in counts)] == []
    assert counts["batches that were repeated"]
    assert counts["harvesters"]


@pytest.mark.slow
def test_every_mutant_is_caught_by_its_invariant():
    survivors = [found for found in hunts([mutant.name for mutant in MUTANTS], JOBS) if not found.caught]
    assert not survivors


@pytest.mark.slow
def test_the_product_needs_what_servers_keep():
    names = [each.name for each in BROKEN_SERVERS if each.name not in SELDOM]
    assert not [found for found in hunts(names, JOBS) if not found.caught]


def test_the_documents_list_every_mutant():
    """If not: ``python -m tests.simulation --list > docs/simulation.csv``."""
    assert (ROOT / "docs" / "simulation.csv").read_text("utf-8") == listing()


def test_a_failure_tells_its_seed_and_what_led_to_it():
    mutant = BY_NAME["early-release"]
    history = next(each for each in (run(seed, mutant) for seed in range(50)) if each.invariant == "I3")
    text = report(history, mutant)
    assert f"--seed {history.seed} --mutant early-release" in text
    assert "I3" in text
    assert ": sends " in text, "what the lane did with the key"


@pytest.mark.parametrize("mode", [Mode.AT_LEAST_ONCE, Mode.SWITCHING, Mode.SPARK])
def test_the_same_seed_makes_the_same_history_in_any_process(mode):
    seed = 7
    trace: deque[Event] = deque()
    run(seed, mode=mode, trace=trace)
    again: deque[Event] = deque()
    run(seed, mode=mode, trace=again)
    assert trace == again
    assert len(trace) > 100
    printed = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--mode", mode, "--trace"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "99"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert len(printed.stdout.splitlines()) == len(trace) + 1
    assert trace[-1][-1] in printed.stdout.splitlines()[-2]


def session_of(token=1):
    made = Session(0, "a session")
    made.token = token
    return made


def audited(*entries):
    audit = Audit()
    for moment, (number, transaction, inserted, committed) in enumerate(entries):
        entry = Entry(number, "k1", 0, transaction, inserted)
        audit.inserted(entry)
        audit.committed(entry, committed)
        assert moment < 10
    return audit


def test_the_audit_demands_order_of_related_records_only():
    log = Log(audited((1, 1, 1, 9), (2, 2, 2, 3)), 1)  # the first commits long after the second
    session = session_of()
    log.append(0, session, 2)
    log.append(0, session, 1)
    log.append(0, session, 2)


@pytest.mark.parametrize("records", [((1, 1, 1, 2), (2, 2, 3, 4)), ((1, 1, 1, 3), (2, 1, 2, 3))])
def test_the_audit_knows_a_predecessor_by_its_commit_or_its_transaction(records):
    with pytest.raises(Violation, match="I2"):
        Log(audited(*records), 1).append(0, session_of(), 2)
    log, session = Log(audited(*records), 1), session_of()
    log.append(0, session, 1)
    log.append(0, session, 2)
    with pytest.raises(Violation, match="I2"):
        log.append(0, session, 1)


def test_the_audit_allows_a_lost_session_one_stale_record_of_a_key():
    log, lost, live = Log(audited((1, 1, 1, 2), (2, 2, 3, 4)), 1), session_of(), session_of()
    log.append(0, lost, 1)
    log.append(0, live, 1)
    log.append(0, live, 2)
    with pytest.raises(Violation, match="I2"):
        log.append(0, live, 1)
    log.append(0, lost, 1, stale=True)
    with pytest.raises(Violation, match="I5"):
        log.append(0, lost, 2, stale=True)


def audited_runs():
    audit = audited((1, 1, 1, 2), (2, 2, 3, 4), (3, 3, 5, 6))
    audit.run_records = 2
    return audit, Log(audit, 1)


def test_the_audit_demands_that_what_a_run_goes_back_behind_follows_again():
    audit, log = audited_runs()
    for leader, number in ((1, 1), (1, 2), (2, 1)):
        log.append(0, session_of(leader), number)
    with pytest.raises(Violation, match="I2"):
        audit.finish()
    for number in (2, 3):
        log.append(0, session_of(2), number)
    audit.finish()


def test_the_audit_allows_no_record_behind_a_purged_one_that_follows_it():
    audit, log = audited_runs()
    for number in (1, 2):
        log.append(0, session_of(), number)
    with pytest.raises(Violation, match="I2"):
        audit.purged(session_of(), 2, owned=True, told=True)
    with pytest.raises(Violation, match="I2"):
        log.append(0, session_of(2), 1)


def test_the_audit_allows_a_run_so_many_records_once_its_first_is_delivered():
    audit, _ = audited_runs()
    session = session_of()
    audit.sent(session, 1, "k1")
    with pytest.raises(Violation, match="I3"):
        audit.sent(session, 2, "k1", follows=True)
    audit.reported(session, 1, "k1", delivered=True)
    audit.sent(session, 2, "k1", follows=True)
    with pytest.raises(Violation, match="I3"):
        audit.sent(session, 3, "k1", follows=True)


def test_the_audit_allows_a_producer_that_is_given_up_one_stale_run_in_order():
    _, log = audited_runs()
    for number in (1, 2, 3):
        log.append(0, session_of(2), number)
    gone = session_of()
    gone.trail.run_of.update({1: 1, 2: 1, 3: 3})
    log.append(0, gone, 1, stale=True)
    log.append(0, gone, 2, stale=True)
    with pytest.raises(Violation, match="I2"):
        log.append(0, gone, 1, stale=True)
    with pytest.raises(Violation, match="I5"):
        log.append(0, gone, 3, stale=True)


def transaction(log, session, *numbers, partitions=1):
    publication = Publication(session, epoch=1, location="here")
    publication.checkpoint = encode([])
    for number in numbers:
        log.append_to(
            publication, number % partitions, [MarkedRecord(number, "t", "k1", "v", timestamp_ms=number)]
        )
    return publication


def test_a_reader_sees_what_is_committed_in_the_order_in_which_it_was_appended():
    audit = audited((1, 1, 1, 2), (2, 2, 3, 4))
    log, session = Log(audit, 1), session_of()
    aborted, committed = transaction(log, session, 2, 1), transaction(log, session, 1)
    log.append(0, session_of(2), 2)
    log.decide(committed, commits=True)
    log.complete(committed)
    assert len(audit.undelivered["k1"]) == 2, "nothing is seen behind an open transaction"
    log.decide(aborted, commits=False)
    log.complete(aborted)
    assert not audit.undelivered["k1"]


def test_the_audit_allows_one_transaction_to_commit_a_record():
    log = Log(audited((1, 1, 1, 2)), 1)
    log.append(0, session_of(1), 1)  # at least once, before
    log.decide(transaction(log, session_of(2), 1), commits=True)
    with pytest.raises(Violation, match="I6"):
        log.decide(transaction(log, session_of(3), 1), commits=True)
    with pytest.raises(Violation, match="I6"):
        log.append(0, session_of(3), 1)
    log.append(0, session_of(1), 1, stale=True)


def test_the_audit_allows_no_transaction_to_commit_behind_a_later_leader():
    log, former = Log(audited((1, 1, 1, 2)), 1), session_of(1)
    late = transaction(log, former, 1)
    log.append(0, session_of(2), 1)
    with pytest.raises(Violation, match="I6"):
        log.decide(late, commits=True)


def published(database, checkpoint):
    """Has what a lane says is in the log be checked."""
    publication = Publication(session_of(), epoch=1, location="here")
    publication.session.lanes = 1
    publication.checkpoint = encode(checkpoint)
    check_published(database, database.audit, publication)


@pytest.mark.parametrize(
    ("runs", "newest", "sound"),
    [((1, 1), "2.5", True), ((2, 2), "2.5", False), ((1, 2), "2.5", False), ((1, 2), "1.5", True)],
)
def test_the_audit_demands_that_a_checkpoint_names_exactly_what_is_in_the_log(runs, newest, sound):
    audit = audited((1, 1, 1, 2), (2, 2, 3, 4))
    database = Database(Scheduler(), audit, Random(1))
    for number, entry in audit.entries.items():
        entry.inserted_at = float(number)
        database.add(Row(number, entry))
    audit.committed_copy(session_of(), 1)
    checkpoint = [Batch((runs,), newest)]
    if sound:
        published(database, checkpoint)
    else:
        with pytest.raises(Violation, match="checkpoint"):
            published(database, checkpoint)


@pytest.mark.parametrize(
    ("attempted", "sound"), [((1, 2), True), ((1, 3), True), ((2, 2), False), (None, False)]
)
def test_the_audit_demands_that_a_checkpoint_names_what_its_transaction_attempts(attempted, sound):
    audit = audited((1, 1, 1, 2), (2, 2, 3, 4))
    database = Database(Scheduler(), audit, Random(1))
    for number, entry in audit.entries.items():
        database.add(Row(number, entry))
    publication = transaction(Log(audit, 1), session_of(), 1, 2)
    publication.checkpoint = encode([], attempted and Batch((attempted,)))
    if sound:
        check_attempted(database, publication)
    else:
        with pytest.raises(Violation, match="checkpoint"):
            check_attempted(database, publication)


def test_a_reader_sees_what_each_partition_has_committed_of_a_torn_transaction():
    audit = audited((1, 1, 1, 2), (2, 2, 3, 4))
    log = Log(audit, 2)
    torn = transaction(log, session_of(), 1, 2, partitions=2)
    log.tear(torn, 0, commits=False)
    assert len(audit.undelivered["k1"]) == 2
    log.tear(torn, 1, commits=True)
    assert list(audit.undelivered["k1"]) == [2]
    assert audit.transacted == {1}
    with pytest.raises(Violation, match="I6"):
        log.decide(transaction(log, session_of(), 1), commits=True)


TERM = 10


class Office(RuleBasedStateMachine):
    """Leadership is told anything in any order; confirmations arrive late, or of an earlier assignment."""

    @initialize()
    def begin(self):
        self.leadership = Leadership(TERM)
        self.now = 0
        self.asked: list[tuple[int, int]] = []
        self.vouched = float("-inf")  # until when some confirmation that counts vouches
        self.told = LeadershipEvent.FENCED

    def heed(self, notices):
        for notice in notices:
            assert (notice is LeadershipEvent.ACQUIRED) != (self.told is LeadershipEvent.ACQUIRED), (
                "told in turns"
            )
            self.told = notice

    @rule(seconds=st.integers(0, 2 * TERM))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def look(self):
        self.heed(self.leadership.tick(self.now))

    @rule()
    def ask(self):
        self.asked.append((self.leadership.assignment, self.now))

    @rule(data=st.data())
    def answer(self, data):
        if self.asked:
            assignment, at = data.draw(st.sampled_from(self.asked))
            if self.leadership.owns and assignment == self.leadership.assignment:
                self.vouched = max(self.vouched, at + TERM)
            self.heed(self.leadership.confirmed(assignment, at, self.now))

    @rule()
    def assign(self):
        if not self.leadership.owns:
            self.vouched = float("-inf")
        self.heed(self.leadership.assigned(self.now))

    @rule()
    def revoke(self):
        self.heed(self.leadership.revoked(self.now))

    @rule()
    def end(self):
        if not self.leadership.leads:
            self.vouched = float("-inf")
            self.leadership.ended()

    @rule()
    def lose(self):
        self.vouched = float("-inf")
        self.heed(self.leadership.lost(self.now))
        assert not self.leadership.owns

    @invariant()
    def leads_only_as_long_as_it_is_vouched_for(self):
        leadership = self.leadership
        assert leadership.lease(self.now) <= max(self.vouched - self.now, 0) or leadership.lease(self.now) < 0
        assert leadership.leads == (self.told is LeadershipEvent.ACQUIRED)
        assert not leadership.leads or leadership.owns


TestOffice = Office.TestCase
TestOffice.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
