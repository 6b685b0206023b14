"""Runs rounds: injects a fault, measures the stall, and waits until all processes work again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .evidence import gather
from .failover_faults import FAILOVER_FAULTS
from .fault import AT_LEAST_ONCE, EXACTLY_ONCE, Fault
from .followed import enter_actions
from .judge import Round, find_secrets, judge, longest_wait
from .late_faults import LATE_FAULTS
from .network_faults import NETWORK_FAULTS
from .operator_faults import OPERATOR_FAULTS
from .postgres_faults import POSTGRES_FAULTS
from .process_faults import PROCESS_FAULTS
from .replica_faults import REPLICA_FAULTS
from .row_faults import ROW_FAULTS
from .server_faults import SERVER_FAULTS
from .site import Site
from .transactions import enter_transactions

FAULTS: tuple[Fault, ...] = (
    *PROCESS_FAULTS,
    *SERVER_FAULTS,
    *POSTGRES_FAULTS,
    *NETWORK_FAULTS,
    *FAILOVER_FAULTS,
    *OPERATOR_FAULTS,
    *ROW_FAULTS,
    *REPLICA_FAULTS,
    *LATE_FAULTS,
)
RECOVERY_SECONDS = {AT_LEAST_ONCE: 60.0, EXACTLY_ONCE: 120.0}
"""Within this time records of every lane must flow again; the longest pause of a harvester is far shorter."""
NEWEST = 2000
"""The number of latest messages that are checked to see whether records flow."""
CALM_SECONDS = 0.5
"""The time of selling after a round, in which late messages may arrive."""

COUNTED = ("records", "lost", "overtaken", "repeated", "reappeared", "stale")
"""What the history tells of each round."""

ReportFailures = Callable[[str], None]
"""Receives one line of text about each round."""


def deck(faults: Sequence[Fault], chance: random.Random) -> Iterator[Fault]:
    """Yields faults for ever: each once in a random order, then again in another order."""
    while True:
        yield from chance.sample(faults, len(faults))


def run_batch(site: Site, faults: Sequence[Fault], tell: ReportFailures) -> list[Round]:
    """Injects faults one after the other while the shop sells, and audits the result."""
    rounds: list[Round] = []
    site.heal()
    with site.shop.selling(site.setup.pause):
        site.shop.wait_for_sales(50)
        for fault in faults:
            rounds.append(one_round(site, fault))
            tell(summary(rounds[-1]))
    result = judge(site, rounds)
    if site.delivery == EXACTLY_ONCE:
        enter_transactions(site, rounds)
        if why := enter_actions(site, rounds):
            tell(f"the model has not followed what harvesters did: {why}")
    rounds[-1].wrong += find_secrets(site)
    site.note("audit", **{name: getattr(result, name) for name in ("sent", "delivered", "lost", "repeated")})
    for each in rounds:
        counts = {name: getattr(each, name) for name in COUNTED}
        site.note("counts", fault=each.fault.name, leaders=each.leaders, **counts)
        if each.wrong:
            site.note("wrong", fault=each.fault.name, findings=each.wrong)
            tell(f"VIOLATION in {each.fault.name}: " + "; ".join(each.wrong))
    if evidence := gather(site, rounds):
        tell(f"EVIDENCE: {evidence}")
    tell(result.summary())
    site.renew_shop(keep=any(each.wrong for each in rounds))
    return rounds


def one_round(site: Site, fault: Fault) -> Round:
    """Injects one fault, and waits until records flow and all processes compete again."""
    each = Round(fault, first=len(site.witness.arrivals), began=time.time())
    token = site.token()
    site.note("strike", fault=fault.name, leader=getattr(site.leader(), "name", None), token=token)
    try:
        strike = each.strike = fault.strike(site)
        site.note("struck", fault=fault.name, floor=strike.floor, **strike.facts)
        resumed_at = time.time()
        what = f"records flow in all lanes again after {fault.name}"
        until(lambda: flows(site, resumed_at), what, RECOVERY_SECONDS[site.delivery], pause=0.1)
        site.heal()
        time.sleep(CALM_SECONDS)
        each.stall, sale = longest_wait(site, strike.at)
        site.note("waited longest", fault=fault.name, seconds=each.stall, sale=sale)
        if "leader" in strike.facts and site.token() > token:
            each.takeover = _first_arrival(site, site.acquired_at()) - strike.at
        fault.check(site, strike)
    except Exception as error:  # noqa: BLE001 - any error of a round is a finding, and others follow
        each.wrong.append(f"{type(error).__name__}: {error}")
        site.note("failed", fault=fault.name, error=str(error))
        site.restore()
        site.note("doing", said=site.host.doing())
        site.heal()
    if not fault.graceful:
        each.leaders = site.beats.leaders_since(token) + (each.strike.lost if each.strike else 0)
    site.note("recovered", fault=fault.name, stall=each.stall, leaders=each.leaders)
    return each


def flows(site: Site, since: float) -> bool:
    """Returns whether the outbox contains nothing older, and newer records of every lane have arrived.

    A record is newer if its commit was requested after ``since``.
    """
    oldest = site.shop.database.fence.oldest()
    if oldest is not None and time.time() - oldest < since:
        return False
    regular, commits = set(site.shop.customers), site.shop.commits
    lanes = {key: lane for key, lane in site.lane_of_keys().items() if key in regular}
    seen = set()
    for _, key, sequence in reversed(site.witness.arrivals[-NEWEST:]):
        if sequence is not None and key in lanes and commits.get((key, sequence), 0.0) >= since:
            seen.add(lanes[key])
    return seen == set(lanes.values())


def _first_arrival(site: Site, since: float) -> float:
    return min((each.at for each in site.witness.arrivals if each.at >= since), default=float("inf"))


def summary(each: Round) -> str:
    """Describes a round in one line."""
    took = "never recovered" if each.stall is None else f"stalled for {each.stall:5.2f} s"
    floor = f" (at least {each.strike.floor:.2f} s)" if each.strike else ""
    taken = "" if each.takeover is None else f", another leader after {each.takeover:.2f} s"
    wrong = f"; WRONG: {'; '.join(each.wrong)}" if each.wrong else ""
    return f"{each.fault.name:18} {took}{floor}{taken}{wrong}"
