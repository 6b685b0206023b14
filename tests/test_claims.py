"""Each figure of the front page and of some others is one that was measured.

Measure again, and what fails here names the words that the pages must have.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from bench.compare.report import number
from bench.methods.claims import means

from .test_documents import ROOT

DOCS = ROOT / "docs"
MANY, FEW, ONE = (f"{keys}, 100 B" for keys in ("1,000 keys", "Zipf", "one key"))
DIVISIONS = ((MANY, "1,000 keys, 1 kB"), (FEW,), (ONE,), ("1,000 keys, 10 kB",))
"""What the first table of docs/performance.md tells apart."""
DELIVERIES = ("at-least-once", "exactly-once")
RESOURCES = ("subject µs", "database µs", "broker µs", "wal B")
STREAM = 300
"""Records a second of the stream of ``bench/methods``."""
AT_LEAST, EXACTLY, TUNED = "at-least-once/inline", "exactly-once/inline", "debezium/tuned"
DEBEZIUM_ONCE = "debezium/exactly-once"


def read(name: str) -> list[dict[str, str]]:
    with (DOCS / "performance" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


BESIDE = {
    (row["database"], row["case"], row["candidate"], row["figure"]): [
        float(row[each]) for each in ("round 1", "round 2") if row[each]
    ]
    for row in read("debezium.csv")
}
"""What was measured beside Debezium 3.6.1: the rounds, in order."""
MEDIANS = {
    (row["table"], row["case"], row["candidate"], row["figure"]): float(row["median"])
    for row in read("figures.csv")
}
TEXTS = {
    page: " ".join((ROOT / page).read_text("utf-8").split())
    for page in (
        "README.md",
        "docs/capacity.md",
        "docs/evaluate.md",
        "docs/performance.md",
        "docs/start.md",
    )
}


def span(values: Sequence[float], form: str = ".1f") -> str:
    """Returns the lowest and the highest, or one of them if they look the same."""
    return " to ".join(dict.fromkeys(f"{each:{form}}" for each in (min(values), max(values))))


def quotients(
    databases: Sequence[str], candidate: str, cases: Sequence[str] = (), *, peer: str = TUNED
) -> list[float]:
    """Returns the rate of a candidate in that of its peer, of each case and round."""
    return [
        ours / theirs
        for (database, case, who, figure), rates in BESIDE.items()
        if database in databases and who == candidate and figure == "/s" and (not cases or case in cases)
        for ours, theirs in zip(rates, BESIDE[database, case, peer, "/s"], strict=True)
    ]


def of_sums(database: str, candidate: str, peer: str, cases: Sequence[str] = ()) -> list[float]:
    """Returns the same of each case, of both rounds together."""
    return [
        sum(rates) / sum(BESIDE[database, case, peer, "/s"])
        for (where, case, who, figure), rates in BESIDE.items()
        if where == database and who == candidate and figure == "/s" and (not cases or case in cases)
    ]


def faults() -> Counter[str]:
    """Returns the sums of all rounds with one broker."""
    sums: Counter[str] = Counter()
    kinds = json.loads((DOCS / "reliability.json").read_text("utf-8"))["kinds"]
    for deliveries in kinds.values():
        for engines in deliveries.values():
            for found in engines.values():
                for kind in found.values():
                    sums.update({name: value for name, value in kind.items() if isinstance(value, int)})
    return sums


def reliability() -> Iterator[str]:
    sums = faults()
    assert (sums["lost"], sums["overtaken"], sums["foreign"], sums["reappeared"]) == (0, 0, 0, 0)
    yield f"{sums['rounds']} rounds of "
    yield f"{sums['records']:,} records"
    yield f"0 lost, out of order or foreign; {sums['wrong']} rounds"


def rates() -> dict[str, str]:
    """Returns the worst and the best round of each delivery, on PostgreSQL and on the two others."""
    places = {"postgres": ("PostgreSQL",), "others": ("MySQL", "MariaDB")}
    return {
        f"{name} {who}": span(quotients(found, who))
        for name, found in places.items()
        for who in (AT_LEAST, EXACTLY)
    }


def front_page() -> Iterator[str]:
    found = rates()
    yield from (each.replace("; ", ". ") for each in reliability())
    yield f"{found[f'postgres {AT_LEAST}']} and {found[f'postgres {EXACTLY}']} on PostgreSQL"
    yield f"{found[f'others {AT_LEAST}']} and {found[f'others {EXACTLY}']} on MySQL and MariaDB"


def evaluation() -> Iterator[str]:
    yield from reliability()
    found = rates()
    yield f"at {found[f'postgres {AT_LEAST}']} times the rate of a tuned Debezium 3.6.1"
    yield f"exactly once at {found[f'postgres {EXACTLY}']} times"
    yield f"on MySQL and MariaDB at {found[f'others {AT_LEAST}']} and {found[f'others {EXACTLY}']} times"
    yield f"at {exactly_once()} times that of Debezium's exactly-once delivery"
    p50 = [span(latency(who, "p50 ms")) for who in (AT_LEAST, EXACTLY, TUNED)]
    yield "in {} ms in the median, exactly once {} ms, tuned Debezium {} ms".format(*p50)
    p99 = [span(latency(who, "p99 ms"), ".0f") for who in (AT_LEAST, EXACTLY, TUNED)]
    yield "the 99th percentiles are {}, {} and {} ms".format(*p99)
    half, most = (elsewhere(f"p{part} ms") for part in (50, 99))
    yield "{:.1f}, {:.0f} and {:.0f} ms, and {:.0f}, {:.0f} and {:.0f} ms".format(*half, *most)
    seconds = [MEDIANS["recovery", "600 s at 400/s", who, "recovery s"] for who in (AT_LEAST, EXACTLY, TUNED)]
    yield "in {:.1f} s, exactly once in {:.1f} s, by a tuned Debezium in {:.0f} s".format(*seconds)
    yield "needs {} MiB at its peak, {} exactly once, {} with Spark; a tuned Debezium {}".format(*memory())


def latency(candidate: str, figure: str) -> list[float]:
    return BESIDE["PostgreSQL", "1,000/s", candidate, figure]


def elsewhere(figure: str) -> list[float]:
    """Returns the median of each candidate on the other processor."""
    return [MEDIANS["latency", "1,000/s", who, figure] for who in (AT_LEAST, EXACTLY, TUNED)]


def exactly_once() -> str:
    """Returns the lowest and the highest quotient of both exactly-once deliveries."""
    drains = (MANY, FEW, ONE)
    return span(
        [
            MEDIANS["drain", case, EXACTLY, "/s"] / MEDIANS["drain", case, DEBEZIUM_ONCE, "/s"]
            for case in drains
        ]
    )


def memory() -> list[str]:
    return [
        f"{MEDIANS['memory', '400,000 rows of 1 kB', who, 'subject MiB']:,.0f}"
        for who in (AT_LEAST, EXACTLY, "at-least-once/spark", TUNED)
    ]


def performance() -> Iterator[str]:
    for candidate in (EXACTLY, AT_LEAST):
        found = [span(quotients(["PostgreSQL"], candidate, cases)) for cases in DIVISIONS]
        words = (
            "{} times with 1,000 keys; {} where few keys have most records; {} with one key; {} with 10 kB"
        )
        yield words.format(*found)
    for who in (AT_LEAST, EXACTLY, TUNED):
        shown = ("; ".join(f"{each:.1f}" for each in latency(who, f"p{part} ms")) for part in (50, 99))
        yield f"| `{who}` | {' | '.join(shown)} |"
    theirs = latency(TUNED, "p99 ms")
    higher = [ours / peer for ours, peer in zip(latency(EXACTLY, "p99 ms"), theirs, strict=True)]
    yield f"{span(higher)} times as high"
    there = [elsewhere(f"p{part} ms") for part in (50, 99)]
    yield "{:.1f} and {:.1f} times as high".format(*(ours / peer for _, ours, peer in there))
    yield "; there {:.1f} and {:.1f}".format(*(ours / peer for ours, _, peer in there))
    peers = [MEDIANS["latency", "1,000/s", DEBEZIUM_ONCE, f"p{part} ms"] for part in (50, 99)]
    both = (ours / peer for (_, ours, _), peer in zip(there, peers, strict=True))
    yield "the median {:.1f} times as high, the 99th percentile {:.1f} times".format(*both)
    yield f"{exactly_once()} times the rate of Debezium's exactly-once delivery"
    recovery = [
        MEDIANS["recovery", "600 s at 400/s", who, "recovery s"] for who in (EXACTLY, AT_LEAST, TUNED)
    ]
    for ours in recovery[:2]:
        yield f"{recovery[2] / ours:.1f} times as early as a tuned Debezium"
    slower = [
        each
        for database in ("MySQL", "MariaDB")
        for peer in ("debezium", TUNED)
        for each in of_sums(database, AT_LEAST, peer)
    ]
    assert max(slower) < 1  # as the page says of every row
    yield f"{span(slower)} of its rate"
    small = (MANY, FEW, ONE)
    others = [each for where in ("MySQL", "MariaDB") for each in of_sums(where, EXACTLY, "debezium", small)]
    yield f"{min(others):.2f} to {max(others):.1f} times the rate of Debezium's default settings with 100 B"
    [mysql], [mariadb] = (
        of_sums(where, EXACTLY, "debezium", ["1,000 keys, 1 kB"]) for where in ("MySQL", "MariaDB")
    )
    yield f"{mysql:.2f} on MySQL, {mariadb:.2f} on MariaDB"
    tuned = [each for where in ("MySQL", "MariaDB") for each in of_sums(where, EXACTLY, TUNED)]
    yield f"Of a tuned Debezium it has {span(tuned)}"


def start() -> Iterator[str]:
    at_least, exactly = (latency(who, "p50 ms") for who in (AT_LEAST, EXACTLY))
    yield f"after {span(at_least)} ms in the median, beside {max(exactly):.0f} ms with `exactly-once`"
    yield "({:.1f} and {:.0f} on another processor)".format(*elsewhere("p50 ms"))
    fast = [BESIDE["PostgreSQL", MANY, who, "/s"] for who in (AT_LEAST, EXACTLY)]
    yield "{:,.0f} and {:,.0f} records/s".format(*(round(sum(each) / len(each), -3) for each in fast))
    work = [span(BESIDE["PostgreSQL", MANY, who, "cpu µs"], ".0f") for who in (EXACTLY, AT_LEAST)]
    yield f"{work[0]} µs of CPU a record, beside {work[1]}"
    with_spark, without = (
        MEDIANS["start", "one row waits", f"at-least-once/{engine}", "first delivery s"]
        for engine in ("spark", "inline")
    )
    yield f"{memory()[2]} MiB beside {memory()[0]}, and {with_spark:.0f} s beside {without:.1f} to deliver"


def sizing() -> Iterator[str]:
    costs = means(json.loads((DOCS / "methods.json").read_text("utf-8")))
    for delivery in DELIVERIES:
        found, nobody = costs[f"outbox {delivery}"], costs["nobody"]
        idle = [found[f"idle {who} %"] / 100 for who in ("subject", "database")]
        yield f"| {delivery}: 0 | {cells(idle)} | | |"
        stream = [
            (found[f"stream {each}"] - nobody.get(f"stream {each}", 0)) * STREAM / 1e6 for each in RESOURCES
        ]
        yield f"| {delivery}: {STREAM} | {cells(stream)} |"
        busy = [
            MEDIANS["latency", "1,000/s", f"{delivery}/inline", f"cpu {who} %"] / 100
            for who in ("subject", "database", "broker")
        ]
        yield f"| {delivery}: 1,000 | {cells(busy)} | |"
        rate = found["drain /s"]
        *cores, log = (found[f"drain {each}"] * rate / 1e6 for each in RESOURCES)
        yield f"| {delivery}: {rate:,.0f} | {cells(cores)} | {log:.1f} |"


def cells(values: Sequence[float]) -> str:
    return " | ".join(f"{value:.2f}" for value in values)


CLAIMS = {
    "README.md": front_page,
    "docs/capacity.md": sizing,
    "docs/evaluate.md": evaluation,
    "docs/performance.md": performance,
    "docs/start.md": start,
}


@pytest.mark.parametrize("page", CLAIMS)
def test_a_page_claims_what_was_measured(page: str) -> None:
    missing = [claim for claim in CLAIMS[page]() if claim not in TEXTS[page]]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "begin", "end", "conditions"),
    [
        ("README.md", "* **Nothing lost", "## See it work", {"3.6.1"}),
        ("docs/evaluate.md", "## Figures", "What is promised", {"3.6.1", "3.0.8", "1,000"}),
    ],
)
def test_a_page_has_no_other_figure(page: str, begin: str, end: str, conditions: set[str]) -> None:
    text = TEXTS[page].partition(begin)[2].partition(end)[0]
    for claim in CLAIMS[page]():
        text = text.replace(claim, "")
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", "", text)
    assert {*re.findall(r"\d[\d,.]*\d|\d", text)} <= conditions


def rows(begin: str, end: str) -> list[list[str]]:
    """Returns the cells of the table between two marks of docs/performance.md, with the names first."""
    text = (DOCS / "performance.md").read_text("utf-8").partition(begin)[2].partition(end)[0]
    lines = re.findall(r"^\|(?!.*--).*", text, re.MULTILINE)
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("table", ["drain", "latency", "recovery", "snapshot", "start", "memory", "writers"])
def test_a_table_has_the_medians(table: str) -> None:
    heads, *cells = rows(f"<!-- {table}: begin -->", f"<!-- {table}: end -->")
    assert cells
    case = ""
    for found, candidate, *values in cells:
        case = found or case
        for head, value in zip(heads[2:], values, strict=True):
            figure = head.partition(" (lowest")[0]
            if value:
                median = MEDIANS[table, case, candidate, figure]
                assert value.partition(" ")[0] == number(median), (case, candidate, head)


def test_the_tables_beside_debezium_have_the_rounds() -> None:
    for begin, end in (("### Beside Debezium", "### On another"), ("### On MySQL", "\n* ")):
        heads, *cells = rows(begin, end)
        assert cells
        for what, *values in cells:
            database, case = re.fullmatch(r"(?:(MySQL|MariaDB), )?(.*)", what).groups("PostgreSQL")  # type: ignore[union-attr]
            figure = "cpu µs" if case.startswith("CPU") else "/s"
            case = case.removeprefix("CPU µs a record, ")
            for candidate, value in zip(heads[1:], values, strict=True):
                shown = [float(each.replace(",", "")) for each in re.findall(r"[\d,]+(?![\d,]*\))", value)]
                rounds = BESIDE.get((database, case, candidate, figure), [])
                digits = -1 if figure == "/s" else 3
                assert [round(each, digits) for each in rounds] == shown, (what, candidate)
