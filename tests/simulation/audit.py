"""The invariants, checked against what really happened; nothing here is known to the simulated processes.

Order is demanded of *causally related* records only: *a* comes before *b* when both have one key and *a* was
committed before *b* was inserted, or the same transaction inserted *a* first. Ids then have the same order.
Two records whose transactions overlapped may arrive either way, whatever their ids.

A *session* is one lane's producer: from the start of an attempt at a lane until it ends. It is *superseded*
from the moment the fence row it entered belongs to another attempt or token, until it enters the lane anew.
A record that it was handed while superseded, or before, is *stale* when it is appended; all else is *live*.
What a producer of runs has sent that was given up is stale, too.

I2 is then: no record is delivered for the first time before one that comes before it; no live copy is
appended behind a live copy of a record that comes after it; and no session, live or not, goes back in its own
order. Where keys have runs, that of a lost leader is repeated: a live copy may be behind that of a record
that comes after it and is not purged, and that one must follow again, as a live copy; and nothing is purged
before what comes before it, but for what a transaction has committed, which is not repeated.

I5 is then: of the records of one key that a session appends stale, no two are causally related, unless they
are of one run, which keeps its order. That is one record or run, but for this: a delivery that was given up
may have a packet on its way still, while the key goes on with a record of a lower id that was committed late
and is related to nothing; or with its successor, as an application or an operator has deleted its row
meanwhile.

All this is as a reader of committed messages sees it. A transaction's copies are never stale, as its commit
is in the past of whoever takes over the lane.

I6 is: a record that a transaction has committed is committed by no other, and appended by no live session
without a transaction; nor does a transaction commit what a later leader has appended without one. A stale
copy of it is another matter: while lanes of at-least-once delivery have been lost and not ended, nobody can
refuse what they still send (I5 bounds it).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from outbox_api import MarkedRecord

from .trail import FAULTY, FIRST_CROWDED, Entry, Furthest, Session, Violation, serial_of


class Audit:
    """Is told of every insert, commit, mark, selection, send, append, purge and reset.

    It raises :class:`Violation` at once.

    Attributes:
        entries: Serial → record, for all that were ever inserted.
        undelivered: Key → committed records that no reader has seen and nobody deleted, by serial.
        parked_keys: Keys that were ever parked.
        transacted: The serials of records that transactions have committed.
        counts: What happened, for the report.
        run_records: How many records of a key may be in flight without a transaction.
        check_paused: Takes what is handed over, or committed; see :mod:`tests.simulation.pauses`.
        flow_seconds: How long a record may take from its commit until it is seen, unless its key is hot or
            fails.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.undelivered: defaultdict[str, dict[int, Entry]] = defaultdict(dict)
        self.parked_keys: set[str] = set()
        self.transacted: set[int] = set()
        self.retried = set[str]()  # keys that an operator has retried
        self.counts: Counter[str] = Counter()
        self.flow_seconds = float("inf")
        self.run_records = 1
        self._furthest: defaultdict[str, Furthest] = defaultdict(Furthest)
        self._purged: defaultdict[str, Furthest] = defaultdict(Furthest)
        self._there: defaultdict[str, dict[int, Entry]] = defaultdict(dict)
        self._owed: dict[int, Entry] = {}  # what must follow again, by serial
        self._leader_ids: set[Any] = set()
        self.check_paused: Callable[[Session, Entry], None] = lambda _session, _entry: None

    # --- applications and operators -----------------------------------------------------------------

    def inserted(self, entry: Entry) -> None:
        self.entries[entry.serial] = entry

    def committed(self, entry: Entry, event: int) -> None:
        entry.committed = event
        self.undelivered[entry.key][entry.serial] = self._there[entry.key][entry.serial] = entry

    def skipped(self, number: int) -> None:
        """Takes that an operator or an application has deleted a record."""
        entry = self.entries[number]
        entry.skipped = True
        self.undelivered[entry.key].pop(number, None)
        self._there[entry.key].pop(number, None)
        self._owed.pop(number, None)

    def superseded(self, number: int) -> None:
        """Takes that a lane has deleted a record, as a later one of its key waits."""
        self.skipped(number)
        self.entries[number].superseded = True
        self.counts["records superseded"] += 1

    def forgiven(self, number: int) -> None:
        """Takes that an operator has a record delivered whether or not it is in the log."""
        self.entries[number].forgiven = True

    # --- the lanes ----------------------------------------------------------------------------------

    def leader_id_taken(self, leader_id: Any, lane: int) -> None:
        """I7: a leader id is never used again."""
        if leader_id in self._leader_ids:
            raise Violation("I7", f"leader id {leader_id} was used before", lane=lane)
        self._leader_ids.add(leader_id)

    def sent(self, session: Session, number: int, key: str, *, follows: bool = False) -> None:
        """I3: at most one record of a key is in flight, that is published and not yet purged or failed.

        Or one run, whose other records follow the first when that is delivered.
        """
        flying = session.trail.flying[key]
        may_follow = flying and flying[0] in session.trail.acked and len(flying) < self.run_records
        if not may_follow if follows else flying:
            text = f"{session.name} sends {number} while {flying} of key {key!r} are in flight"
            raise Violation("I3", text, key, session.lane)
        flying.append(number)
        self.entries[number].failed = False
        self._kept_again(session, self.entries[number])

    def published(self, session: Session, record: MarkedRecord) -> None:
        """*foreign*: what makes no message is handed to no producer."""
        entry = self.entries[serial_of(record)]
        entry.sent = True
        self.check_paused(session, entry)
        if record.fault or entry.refusals >= FAULTY:
            text = f"{session.name} hands over {record.id}, which makes no message"
            raise Violation("foreign", text, record.key, session.lane)

    def reported(self, session: Session, number: int, key: str, *, delivered: bool) -> None:
        if delivered:
            session.trail.acked.add(number)
        else:
            self.entries[number].failed = True
            session.trail.acked.discard(number)
            self._landed(session, number, key)

    # --- the broker ---------------------------------------------------------------------------------

    def appended(self, session: Session, number: int, *, stale: bool) -> None:
        """I6 and *foreign*: a copy is in the log, without a transaction."""
        entry = self._known(number)
        if not stale:
            self._check_purged(entry, session)
        if entry.transacted and not stale:
            text = f"{session.name} appended {number} of key {entry.key!r}, which a transaction had committed"
            self._again(entry, session, text)
        elif entry.transacted:
            self.counts["stale copies of committed records"] += 1
        entry.token = max(entry.token, session.token)
        entry.copies += 1

    def committed_copy(self, session: Session, number: int) -> None:
        """I6 and *foreign*: a transaction is certain to commit a copy."""
        entry = self._known(number)
        self.check_paused(session, entry)
        self._kept_again(session, entry)
        self._check_purged(entry, session)
        if entry.transacted:
            text = f"{session.name} committed {number} of key {entry.key!r} a second time"
            self._again(entry, session, text)
        elif entry.token > session.token:
            text = f"{session.name} committed {number} of key {entry.key!r} behind a later leader's copy"
            self._again(entry, session, text)
        entry.copies += 1
        entry.transacted += 1
        self.transacted.add(number)

    def seen(self, session: Session, number: int, *, stale: bool, now: float) -> None:
        """I2 and I5: what a reader of committed messages may come to next in the log of a key."""
        entry = self.entries[number]
        key, trail = entry.key, session.trail
        if entry.superseded:
            self._arrived_nevertheless(entry, session, stale=stale)
        if not stale:
            self._owed.pop(number, None)
        if entry.seen and entry.forgiven:
            return
        if not entry.seen:
            self._delivered_first(entry, session)
            self._check_age(entry, now)
        entry.seen = True
        if trail.furthest[entry.stream].reaches_behind(entry):
            self._reappeared(entry, session, trail.furthest[entry.stream], "its own")
        trail.furthest[entry.stream].take(entry)
        if stale:
            self.counts["stale copies"] += 1
            self._stale(entry, session)
            return
        furthest = self._furthest[entry.stream]
        if furthest.reaches_behind(entry):
            if self.run_records == 1:
                self._reappeared(entry, session, furthest, "a live")
            self.counts["repeats behind unpurged records"] += 1
            there = self._there[key].values()
            self._owed.update((each.serial, each) for each in there if each.seen and entry.precedes(each))
        furthest.take(entry)

    def _arrived_nevertheless(self, entry: Entry, session: Session, *, stale: bool) -> None:
        """*coalesced*: what a lane has deleted as superseded is sent by none that lives.

        A request that was given up may still be on its way if an operator has retried the key since.
        """
        given_up = entry.failed and entry.key in self.retried
        if not (stale or entry.forgiven or given_up):
            text = f"{session.name} delivered {entry.serial}, which was superseded"
            raise Violation("coalesced", text, entry.key, session.lane)
        self.counts["stale copies of superseded records"] += not entry.seen

    def _check_purged(self, entry: Entry, session: Session) -> None:
        """I2: where keys have runs, what follows what is repeated is not purged."""
        purged = self._purged[entry.stream]
        if self.run_records > 1 and not entry.forgiven and purged.reaches_behind(entry):
            self._reappeared(entry, session, purged, "a purged")

    def _kept_again(self, session: Session, entry: Entry) -> None:
        """*kept*: a lane publishes no record again of which it knows that its row cannot be deleted."""
        if entry.vain is session:
            text = f"{session.name} publishes {entry.serial}, whose row it has deleted in vain"
            raise Violation("kept", text, entry.key, session.lane)

    def _again(self, entry: Entry, session: Session, text: str) -> None:
        if not entry.forgiven:
            raise Violation("I6", text, entry.key, session.lane)
        self.counts["forgiven copies"] += 1

    def _known(self, number: int) -> Entry:
        entry = self.entries.get(number)
        if entry is None or not entry.committed:
            raise Violation("foreign", f"record {number} is in the log, but nobody committed it")
        if entry.refusals >= FAULTY:
            raise Violation("foreign", f"record {number} is in the log, but makes no message", entry.key)
        return entry

    def _delivered_first(self, entry: Entry, session: Session) -> None:
        waiting = self.undelivered[entry.key]
        for other in waiting.values():  # in the order of their commits
            if other.committed > entry.committed:
                break
            if other is not entry and other.precedes(entry):
                text = f"{session.name} delivered {entry.serial} of key {entry.key!r} before {other.serial}"
                raise Violation("I2", text, entry.key, session.lane)
        waiting.pop(entry.serial, None)

    def _stale(self, entry: Entry, session: Session) -> None:
        stale, run_of = session.trail.stale[entry.key], session.trail.run_of
        run = run_of.get(entry.serial)
        for other in stale:
            if other.skipped or (run is not None and run_of.get(other.serial) == run):
                continue
            if other.precedes(entry) or entry.precedes(other):
                text = f"{session.name}, superseded, appended {other.serial} and then {entry.serial}"
                raise Violation("I5", f"{text} of key {entry.key!r}", entry.key, session.lane)
        stale.append(entry)

    def _reappeared(self, entry: Entry, session: Session, furthest: Furthest, whose: str) -> None:
        last = furthest.entry.serial if furthest.entry else 0
        text = (
            f"{session.name} appended {entry.serial} of key {entry.key!r} behind {whose} successor ({last})"
        )
        raise Violation("I2", text, entry.key, session.lane)

    # --- the database -------------------------------------------------------------------------------

    def purged(self, session: Session, number: int, *, owned: bool, told: bool) -> None:
        """I1, I4 and I8: a row was deleted for a lane, which was told that it is delivered or was not."""
        entry = self.entries[number]
        self._purged[entry.stream].take(entry)
        there = self._there[entry.key]
        there.pop(number, None)
        for other in there.values() if self.run_records > 1 else ():  # in the order of their commits
            if other.committed > entry.committed:
                break
            if other.precedes(entry) and not (other.kept or other.transacted or other.forgiven):
                text = f"{session.name} purged {number} before {other.serial}, which comes before it"
                raise Violation("I2", text, entry.key, session.lane)
        if not owned:
            text = f"{session.name} purged {number}, which carries another leader id or is of no batch"
            raise Violation("I4", text, entry.key, session.lane)
        if not entry.copies:
            raise Violation("I1", f"{session.name} purged {number}, undelivered", entry.key, session.lane)
        if not told:
            text = f"{session.name} purged {number}, of which it was not told that it was delivered"
            raise Violation("I8", text, entry.key, session.lane)

    def kept(self, session: Session, number: int) -> None:
        """Takes that a session has deleted a row in vain. Who does not know of that publishes it again."""
        self.entries[number].vain = session
        self.entries[number].forgiven = True
        self.counts["rows deleted in vain"] += 1

    def thought_kept(self, session: Session, number: int) -> None:
        """*kept*: a lane takes no row for one that was deleted in vain if no trigger keeps it."""
        entry = self.entries[number]
        if not entry.kept:
            text = f"{session.name} takes {number} for deleted in vain, and nothing keeps its row"
            raise Violation("kept", text, entry.key, session.lane)

    def settled(self, session: Session, number: int) -> None:
        """Takes that a purge of a record is durable, whether or not its row was still there."""
        self._landed(session, number, self.entries[number].key)

    def _landed(self, session: Session, number: int, key: str) -> None:
        if number in session.trail.flying[key]:
            session.trail.flying[key].remove(number)

    def reset(self, session: Session, number: int, *, owned: bool) -> None:
        """I4: a row was given back for a lane."""
        if not owned:
            text = f"{session.name} reset {number}, which carries another leader id"
            raise Violation("I4", text, self.entries[number].key, session.lane)

    def fenced_write(self, session: Session, verb: str, *, current: bool, key: str | None = None) -> None:
        """I4: a mark or a park took effect."""
        if not current:
            raise Violation(
                "I4", f"a {verb} of {session.name} took effect with an old fence", key, session.lane
            )

    def taken(self, session: Session, number: int, key: str, *, parked: bool) -> None:
        """*parked*: no mark or selection takes a row of a parked key."""
        self.counts["marked or selected"] += 1
        if parked:
            text = f"{session.name} took {number} of key {key!r}, which is parked"
            raise Violation("parked", text, key, session.lane)

    def parks(self, session: Session, number: int) -> None:
        """*parked*: no key is parked for a record while one that comes before it is not delivered."""
        self.counts["keys parked"] += 1
        head = self.entries[number]
        self.parked_keys.add(head.key)
        for other in self.undelivered[head.key].values():
            if not other.copies and other.precedes(head):
                text = (
                    f"{session.name} parked {number} of key {head.key!r} before {other.serial} was delivered"
                )
                raise Violation("parked", text, head.key, session.lane)

    # --- liveness -----------------------------------------------------------------------------------

    def check_flow(self, now: float) -> None:
        """I13: a key that is neither hot nor fails waits for none that is or does."""
        for waiting in self.undelivered.values():
            for entry in waiting.values():
                self._check_age(entry, now)

    def _check_age(self, entry: Entry, now: float) -> None:
        if now - entry.since > self.flow_seconds and int(entry.key[1:]) < FIRST_CROWDED:
            text = f"record {entry.serial} of key {entry.key!r} took longer than {self.flow_seconds:g} s"
            raise Violation("I13", text, entry.key)

    # --- at rest ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """I9: what was committed arrived, unless an operator skipped it; I2: what had to follow again did."""
        for entry in self._owed.values():
            text = f"{entry.serial} of key {entry.key!r} did not follow again what was repeated behind it"
            raise Violation("I2", text, entry.key)
        for key, waiting in self.undelivered.items():
            for number in waiting:
                raise Violation("I9", f"record {number} of key {key!r} never arrived", key)
