"""Backlogs of many sizes and conditions: does a batch cost more when more rows, dead or alive, are there?"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from bench.compare.backlog import Backlog, Shape
from bench.compare.bench import Bench
from bench.compare.candidates import Candidate, CandidateError, Subject
from bench.compare.drain import at_work, per_record
from bench.compare.meter import Meter, Values
from bench.compare.servers import Place
from bench.compare.steady import held_snapshot, warm_up

CONDITIONS = ("fresh", "dead rows in front", "dead rows under a snapshot", "2,000 parked keys in front")
FRESH, DEAD, SNAPSHOT, PARKED = CONDITIONS
DEAD_ROWS = 200_000
PARKED_KEYS = 2000
PATIENCE = 120.0


def standing(bench: Bench, rows: int, condition: str, records: int) -> Callable[[Candidate], Values]:
    """Returns a function that lets one candidate deliver the first records of a backlog of ``rows`` rows.

    A small backlog is filled repeatedly until as many records are delivered as of a large one.

    Args:
        bench: The run.
        rows: Rows of the backlog.
        condition: One of :data:`CONDITIONS`.
        records: How many are delivered at least.
    """

    def take(candidate: Candidate) -> Values:
        with ExitStack() as stack:
            place, subject = stack.enter_context(at_work(bench, candidate))
            warm_up(place, subject)
            if condition == PARKED:
                park(place)
            if condition == SNAPSHOT:
                stack.enter_context(held_snapshot(place))  # from now on no dead row can be removed
            if condition in (DEAD, SNAPSHOT):
                kill_rows(place)
            return portion(place, subject, rows, records)

    return take


def portion(place: Place, subject: Subject, rows: int, records: int) -> Values:
    """Returns the rate and the costs of the first records of a backlog."""
    total: Values = {}
    delivered = 0
    with (
        closing(Backlog(place, subject, Shape(), rows, tidy=False)) as backlog,
        Meter(place, subject) as meter,
    ):
        while delivered < records:
            backlog.fill()
            meter.start()
            backlog.drain(PATIENCE, records if rows > records else None)
            used = meter.stop()
            taken = backlog.delivered()
            if not taken:
                raise CandidateError(f"nothing was delivered within {PATIENCE:g} s")
            delivered += taken
            total = {name: total.get(name, 0) + number for name, number in used.items()}
    return {"/s": delivered / total["seconds"], **per_record(total, delivered), "records": delivered}


def kill_rows(place: Place) -> None:
    """Leaves dead rows at the head of the table; nobody has ever seen them alive."""
    insert = """
        INSERT INTO outbox
            (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        SELECT now(), 'dead', 'key', lpad(g::text, 100, '.'), '{}', '{}' FROM generate_series(1, %s::int) AS g
    """
    with place.connect() as connection:
        connection.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")
        with connection.transaction():
            connection.execute(insert, (DEAD_ROWS,))
            connection.execute("DELETE FROM outbox WHERE kafka_topic = 'dead'")


def park(place: Place) -> None:
    """Has the candidate park keys: each has a row that is no message, as its headers do not match.

    Raises:
        CandidateError: They are not parked in time, or the candidate parks nothing.
    """
    insert = """
        INSERT INTO outbox
            (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
        SELECT now(), %s, 'parked-' || g, 'x', '{h}', '{}' FROM generate_series(1, %s::int) AS g
    """
    with place.connect() as connection:
        connection.execute(insert, (place.topic, PARKED_KEYS))
        counted = "SELECT count(DISTINCT kafka_key) FROM outbox_dead_letters"
        if connection.execute("SELECT to_regclass('outbox_dead_letters')").fetchone() == (None,):
            raise CandidateError("it parks no keys")
        until = time.monotonic() + PATIENCE
        while (found := connection.execute(counted).fetchone() or (0,))[0] < PARKED_KEYS:
            if time.monotonic() > until:
                raise CandidateError(f"{found[0]} of {PARKED_KEYS} keys are parked after {PATIENCE:g} s")
            time.sleep(0.1)
