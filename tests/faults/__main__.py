"""``python -m tests.faults``: runs a number of rounds, or as many as a time limit permits."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..events import INTAKES  # noqa: TID252 - pytest gives tests no absolute name
from .brokers import BROKER_SESSION_SECONDS, SETUPS, Setup
from .fault import AT_LEAST_ONCE, DELIVERIES, ENGINES, Fault
from .followed import actions
from .host import Power
from .hosts import HOSTS
from .outage import measure
from .report import Report, does
from .rounds import FAULTS, deck, run_batch
from .site import SESSION, Site
from .table import Ran, table

BATCH = 8
"""Rounds between two audits."""


def tell(line: str) -> None:
    """Prints a line without delay, and writes it to a file."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    options = _options()
    # A signal must end all servers and unmount all file systems, like the normal end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 32)
    report = Report(options.report, fresh=options.fresh) if options.report else None
    if options.outage:
        return 1 if sum(measure_outages(options, engine, report) for engine in options.engines) else 0
    ran: list[Ran] = []
    try:
        places = (options.engines, options.database, options.delivery, SETUPS, options.intake)
        for place in itertools.product(*places):
            ran.extend(run(options, Place(*place), seed, report))  # keeps what was run before an error
    finally:
        if ran:
            tell(f"\n{table(ran)}")
            tell(f"\n{actions(ran)}")
    return 1 if any(each.round.wrong for each in ran) else 0


def measure_outages(options: argparse.Namespace, engine: str, report: Report | None) -> int:
    """Stops the database and then the broker for a long time; returns how many of these outages failed."""
    wrong = 0
    folder = _folder(options, engine)
    with Site(folder, engine, random.Random(0), harvesters=2, session=options.session) as site:
        for away in "database", "broker":
            found = measure(site, away, options.outage)
            tell(json.dumps(found))
            wrong += bool(found["lost"] or found["out_of_order"])
            if report:
                report.add_outage(found)
    return wrong


class Place(NamedTuple):
    """Where rounds run."""

    engine: str
    database: str
    delivery: str
    setup: Setup
    intake: str


def run(options: argparse.Namespace, place: Place, seed: int, report: Report | None) -> Iterator[Ran]:
    """Runs the rounds that fit a place; yields them batch by batch."""
    engine, database, delivery, setup, intake = place
    if intake == "commits" and Power.COMMITS not in HOSTS[database].powers:
        return
    fitting = [each for each in options.kinds if each.fits(HOSTS[database], engine, delivery, intake)]
    faults = [each for each in fitting if each.setup is setup]
    if not faults:
        return
    chance = random.Random(f"{seed} {engine}")
    folder = _folder(options, engine)
    through = f" ({intake})" if intake else ""
    where = f"{database}{through}, {setup.title}, engine {engine}, {delivery}"
    tell(f"{where}, seed {seed}, {len(faults)} kinds; logs in {folder}")
    began, wrong = time.monotonic(), 0
    ends = began + 60 * options.minutes if options.minutes else float("inf")
    most = None if options.minutes and not options.rounds else (options.rounds or 1) * len(faults)
    cards = itertools.islice(deck(faults, chance), most)
    settings = {"harvesters": options.harvesters, "session": options.session, "intake": intake}
    settings |= {"setup": setup.with_session(options.broker_session), "keys": options.keys}
    settings |= {"keeps": options.kept}
    with Site(folder, engine, chance, database=database, delivery=delivery, **settings) as site:
        while time.monotonic() < ends and (batch := list(itertools.islice(cards, BATCH))):
            rounds = run_batch(site, batch, tell)
            wrong += sum(bool(each.wrong) for each in rounds)
            if report:
                report.add(seed, rounds, site)
            yield from (Ran((f"{database}{through}", engine, delivery), each) for each in rounds)
    tell(f"{where}: {wrong} rounds failed in {time.monotonic() - began:.0f} s")
    if not wrong and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(options: argparse.Namespace, engine: str) -> Path:
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"faults-{engine}-", dir=options.folder))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        epilog="\n".join(["kinds:", *(f"  {fault.name}: {does(fault)}" for fault in FAULTS)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="of each kind (default 1, or no limit with --minutes)")
    parser.add_argument(
        "--minutes",
        type=float,
        help="minutes after which no further batch starts, for each engine, delivery and number of brokers",
    )
    parser.add_argument("--kinds", type=_kinds, default=FAULTS, help="comma-separated (default: all)")
    parser.add_argument("--engines", type=_engines, default=ENGINES, help="comma-separated (default: both)")
    parser.add_argument(
        "--database",
        type=_databases,
        default=["postgres"],
        help=f"postgres (default), or others, comma-separated: {', '.join(HOSTS)}",
    )
    parser.add_argument(
        "--delivery",
        type=_deliveries,
        default=[AT_LEAST_ONCE],
        help=f"{AT_LEAST_ONCE} (default), or more than one, comma-separated: {', '.join(DELIVERIES)}",
    )
    parser.add_argument(
        "--intake",
        type=_intakes,
        default=[""],
        help=f"applications write into another table; how rows are taken in, of {', '.join(INTAKES)}",
    )
    parser.add_argument(
        "--keys", type=int, help="so few keys, the first with most records, and many of them at a time"
    )
    parser.add_argument(
        "--seed", type=int, help="seed of all random choices (default: a random one, which is printed)"
    )
    parser.add_argument("--harvesters", type=int, default=3, help="processes that compete (default 3)")
    parser.add_argument(
        "--broker-session",
        type=float,
        default=BROKER_SESSION_SECONDS,
        help="session of replicated brokers in seconds (default 9); a longer one tears more transactions",
    )
    parser.add_argument("--session", type=float, default=SESSION, help="session time-out in seconds")
    parser.add_argument(
        "--outage", type=float, help="no rounds: stops the database and the broker for so many seconds each"
    )
    parser.add_argument("--kept", action="store_true", help="keeps what is delivered, and audits that, too")
    parser.add_argument("--report", type=Path, help="adds the results to this Markdown file")
    parser.add_argument("--fresh", action="store_true", help="deletes the earlier results of the report")
    parser.add_argument("--folder", type=Path, help="folder for logs and history (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keeps them even if no round fails")
    options = parser.parse_args()
    if options.report and options.intake != [""]:
        parser.error("the tables of a report do not tell intakes apart")
    return options


def _intakes(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(INTAKES):
        raise argparse.ArgumentTypeError(f"unknown intakes: {', '.join(sorted(unknown))}")
    return text.split(",")


def _kinds(text: str) -> list[Fault]:
    by_name = {fault.name: fault for fault in FAULTS}
    if unknown := set(text.split(",")) - set(by_name):
        raise argparse.ArgumentTypeError(
            f"unknown kinds: {', '.join(sorted(unknown))}; known are {', '.join(by_name)}"
        )
    return [by_name[name] for name in text.split(",")]


def _engines(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(ENGINES):
        raise argparse.ArgumentTypeError(f"unknown engines: {', '.join(sorted(unknown))}")
    return text.split(",")


def _databases(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(HOSTS):
        raise argparse.ArgumentTypeError(f"unknown databases: {', '.join(sorted(unknown))}")
    return text.split(",")


def _deliveries(text: str) -> list[str]:
    if unknown := set(text.split(",")) - set(DELIVERIES):
        raise argparse.ArgumentTypeError(f"unknown deliveries: {', '.join(sorted(unknown))}")
    return text.split(",")


if __name__ == "__main__":
    sys.exit(main())
