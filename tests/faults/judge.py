"""Compares what was sold with what arrived, round by round, and searches for secrets."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from outbox_api.seams.kept import Chosen
from outbox_audit import SEQUENCE_HEADER, Audit, Result
from outbox_core.settings import Limits

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .fault import AT_LEAST_ONCE, EXACTLY_ONCE, Fault, Strike
from .site import Site

CATCH_UP_SECONDS = {AT_LEAST_ONCE: 60.0, EXACTLY_ONCE: 120.0}
"""Seconds to wait for all records; an open transaction of a lost process ends after its timeout."""
RUN = Limits().max_run_records
"""Records of a key that may be in flight when a leader is lost."""
MOST_KEPT = 10_000_000
"""More records than a batch of rounds has."""
STATEMENTS = ("status", "check")
"""The commands whose JSON is searched for the password."""


@dataclass
class Round:
    """One fault, from just before it to just before the next.

    Attributes:
        fault: Its kind.
        first: How many messages had arrived when it began.
        leaders: How many leaders were lost; each may leave a stale run of a key.
        strike: What the fault reports; ``None`` if it failed.
        stall: The longest wait of a record in this round, in seconds; see :func:`longest_wait`. ``None`` if
            records did not flow again.
        wrong: What failed, in words.
        records: Records that arrived for the first time.
        repeated: Messages that were not the first of their record.
        reappeared: Those of them behind a later record of their key.
        stale: Those of them that later records of their key have not followed again.
        overtaken: First arrivals behind a later record of their key.
        foreign: Messages of records that were not committed.
        lost: Records sold in this round that never arrived.
        takeover: Seconds from the fault to the first delivery by another leader; ``None`` without one.
        recoveries: Starts of lanes that found records of theirs in the log.
        recovered: The number of these records; they were purged instead of sent again.
        aborted: Batches whose transaction was aborted and whose records were marked anew.
        hidden: Records of aborted transactions on the topic, which readers of committed messages do not see.
        torn: Transactions of which the broker has committed one part and aborted another.
        doubted: Recoveries of transactions of unknown outcome that had rows in the outbox.
        doubted_found: Those of these rows that were found in the log.
        actions: The actions of the model of exactly-once delivery, and how often the harvesters took each.
        evidence: What fresh consumers have read, if anything was missing or double.
        began: When it began, in seconds since the epoch.
    """

    fault: Fault
    first: int
    leaders: int = 0
    strike: Strike | None = None
    stall: float | None = None
    wrong: list[str] = field(default_factory=list)
    records: int = 0
    repeated: int = 0
    reappeared: int = 0
    stale: int = 0
    overtaken: int = 0
    foreign: int = 0
    lost: int = 0
    takeover: float | None = None
    recoveries: int = 0
    recovered: int = 0
    aborted: int = 0
    hidden: int = 0
    torn: int = 0
    doubted: int = 0
    doubted_found: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    evidence: str = ""
    began: float = 0.0


def judge(site: Site, rounds: Sequence[Round]) -> Result:
    """Audits a batch of rounds after selling has ended, and adds to each round what arrived in it.

    Returns:
        The audit of the whole batch, from the present content of the topic.
    """
    last, patience = rounds[-1], CATCH_UP_SECONDS[site.delivery]
    try:
        site.shop.wait_until_harvested(patience)
    except AssertionError as error:
        last.wrong.append(f"the outbox does not become empty: {error}")
    site.note("harvested")
    try:
        until(lambda: site.witness.behind() == 0, "all messages are read", patience)
        site.note("read")
    except AssertionError as error:
        last.wrong.append(f"a transaction does not end: {error}")
    whole = site.shop.audit()
    sold = site.shop.sold()
    audits: defaultdict[str, Audit] = defaultdict(Audit)
    for key, number in sold:
        audits[key].committed(key, number)
    _enter(site, rounds, audits)
    _enter_stale(site, rounds, audits)
    totals = [each.result() for each in audits.values()]
    for name in ("foreign", "overtaken", "reappeared", "repeated", "lost"):
        ours, theirs = sum(getattr(each, name) for each in totals), getattr(whole, name)
        if ours != theirs:
            last.wrong.append(f"{name}: {theirs} on the topic, {ours} as the consumer saw it")
    _enter_lost(site, rounds, sold)
    _enter_waits(site, rounds)
    if site.keeps:
        last.wrong += _wrongly_kept(site, sold)
    for each in rounds:
        each.wrong += [
            f"{getattr(each, name)} {name}"
            for name in ("lost", "overtaken", "foreign")
            if getattr(each, name)
        ]
        if each.repeated and site.delivery == EXACTLY_ONCE:
            each.wrong.append(f"{each.repeated} duplicates")
    return whole


def _enter(site: Site, rounds: Sequence[Round], audits: defaultdict[str, Audit]) -> None:
    arrivals = site.witness.arrivals
    repeated: Counter[str] = Counter()
    allowed = 0
    for each, (start, end) in zip(
        rounds, pairwise([0, *(each.first for each in rounds[1:]), len(arrivals)]), strict=True
    ):
        allowed += each.leaders
        arrived = arrivals[start:end]
        keys = {key for _, key, _ in arrived}
        before = {key: audits[key].result() for key in keys}
        for _, key, sequence in arrived:
            audits[key].arrived(key, sequence)
        for key, earlier in before.items():
            after = audits[key].result()
            each.records += after.delivered - earlier.delivered
            for name in "repeated", "foreign", "overtaken", "reappeared":
                setattr(each, name, getattr(each, name) + getattr(after, name) - getattr(earlier, name))
            repeated[key] += after.reappeared - earlier.reappeared
            if after.overtaken > earlier.overtaken:
                site.note("out of order", fault=each.fault.name, key=key, examples=after.examples)
            if after.repeated > earlier.repeated and site.delivery == EXACTLY_ONCE:
                came = [each for each in arrivals[:end] if each.key == key]
                site.note("duplicate", fault=each.fault.name, key=key, arrivals=came)
        most = max(repeated.values(), default=0)
        if most > allowed * RUN:
            site.note("repeated", fault=each.fault.name, most=most, leaders=allowed)


def _enter_stale(site: Site, rounds: Sequence[Round], audits: Mapping[str, Audit]) -> None:
    """Adds to each round the stale records whose last message arrived in it."""
    last = {(key, sequence): place for place, (_, key, sequence) in enumerate(site.witness.arrivals)}
    starts = [0, *(each.first for each in rounds[1:])]
    stale = Counter(
        (bisect_right(starts, last[key, sequence]) - 1, key)
        for key, audit in audits.items()
        for sequence in audit.stale().get(key, ())
    )
    for number, each in enumerate(rounds):
        of_keys = {key: found for (of, key), found in stale.items() if of == number}
        each.stale = sum(of_keys.values())
        most, allowed = max(of_keys.values(), default=0), RUN * each.leaders
        if of_keys:
            site.note("stale", fault=each.fault.name, keys=of_keys, leaders=each.leaders)
        if most > allowed:
            each.wrong.append(f"{most} stale copies of a key after {each.leaders} lost leaders")


def _wrongly_kept(site: Site, sold: Collection[tuple[str, int]]) -> list[str]:
    """Compares what is kept with what was sold: each record once and in order, as the outbox is empty."""
    with closing(site.shop.database.dialect.kept()) as archive:
        found = [each.record for each in archive.find(Chosen(topics=[site.shop.topic]), 0, MOST_KEPT)]
    audit = Audit()
    for key, number in sold:
        audit.committed(key, number)
    for record in found:
        audit.arrived(record.key, int(dict(record.headers)[SEQUENCE_HEADER] or 0))
    result = audit.result()
    site.note("kept", records=len(found), result=result)
    return [
        f"{getattr(result, name)} records {name} among those that are kept"
        for name in ("lost", "repeated", "overtaken", "foreign")
        if getattr(result, name)
    ]


def longest_wait(
    site: Site, since: float, before: float = float("inf")
) -> tuple[float, tuple[str, int] | None]:
    """Returns the longest wait of a record, from the request of its commit to the consumer, and the record.

    Considers the records that arrived for the first time in that span.
    """
    commits, longest, slowest = site.shop.commits, 0.0, None
    seen = set()
    for at, key, sequence in site.witness.arrivals:
        sale = (key, sequence or 0)
        known = sale not in seen and sale in commits
        if known and since <= at < before and at - commits[sale] > longest:
            longest, slowest = at - commits[sale], sale
        seen.add(sale)
    return longest, slowest


def _enter_waits(site: Site, rounds: Sequence[Round]) -> None:
    """Measures the stall again, after everything has arrived."""
    struck = [each for each in rounds if each.strike is not None]
    for each, following in zip_longest(struck, struck[1:]):
        if each.stall is not None and each.strike is not None:
            before = following.strike.at if following and following.strike else float("inf")
            each.stall, _ = longest_wait(site, each.strike.at, before)


def _enter_lost(site: Site, rounds: Sequence[Round], sold: Iterable[tuple[str, int]]) -> None:
    missing = set(sold) - {(key, sequence) for _, key, sequence in site.witness.arrivals}
    for sale in sorted(missing):
        at = site.shop.commits.get(sale, 0.0)
        of = [each for each in rounds if each.began <= at]  # with what was under way as the fault began
        (of or rounds)[-1 if of else 0].lost += 1
        site.note("lost", sale=sale, asked_at=at)


def find_secrets(site: Site) -> list[str]:
    """Returns where the harvesters' password appears: in a log, or in the JSON of a command."""
    found = [
        harvester.log.name
        for harvester in site.fleet.harvesters
        if site.password in harvester.log.read_text(errors="replace")
    ]
    settings = next(iter(site.slots.values())).log.with_suffix(".yaml").name
    for command in STATEMENTS:
        done = subprocess.run(
            [sys.executable, "-m", "outbox_core", command, "--file", settings, "--json"],
            cwd=site.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        (site.folder / f"{command}.json").write_text(done.stdout + done.stderr)
        if site.password in done.stdout + done.stderr:
            found.append(f"outbox {command} --json")
    return [f"the password is in {place}" for place in found]
