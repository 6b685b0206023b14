"""What ``outbox check`` reports about the column with the time when a row came to this replica."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox_sdk import Finding, Level
from outbox_sdk.portable import Session

from outbox_mysql.options import MySqlOptions

_TRIGGERS = (
    "SELECT action_statement FROM information_schema.triggers"
    " WHERE event_object_schema = COALESCE(NULLIF({schema}, ''), DATABASE())"
    " AND event_object_table = {table} AND event_manipulation = 'INSERT' AND action_timing = 'BEFORE'"
)
_RUNS = "SHOW GLOBAL VARIABLES LIKE 'slave_run_triggers_for_rbr'"
_FILL = (
    "SET @outbox_zone = @@session.time_zone, time_zone = '+00:00', NEW.{column} = SYSDATE(6),"
    " time_zone = @outbox_zone"
)
"""Sets a column to the present time in UTC.

Other functions than ``SYSDATE`` return the time of the change that is replicated. It returns local time,
which an hour of each autumn has twice where there is summer time, so it is read in UTC, and not converted.
"""
_IN_UTC = re.compile(r"time_zone\s*=\s*'\+00:00'")

_WITHOUT = "as time of arrival the time of writing is copied, by the clock of the cluster that wrote the row"


def arrival(session: Session, options: MySqlOptions, *, mariadb: bool) -> Iterator[Finding]:
    """Checks that this replica fills the column itself; row replication copies all columns."""
    origin = options.origin
    if origin is None or not origin.arrival:
        return
    if not mariadb:
        seen = f"MySQL's replication copies the column {origin.arrival} and runs no triggers: {_WITHOUT}"
        yield Finding(Level.WARNING, "arrival", seen, "leave arrivalColumn out, and keep clocks together")
        return
    place = session.idiom.place(options.outbox)
    with session.transaction("look at the outbox's triggers"):
        triggers = [str(row[0]) for row in session.fetch(_TRIGGERS, **place)]
        runs = [str(row[1]) for row in session.fetch(_RUNS)]
    filling = [
        text for text in map(str.lower, triggers) if origin.arrival.lower() in text and "sysdate" in text
    ]
    quote, table = session.idiom.quote, session.idiom.quote_table(options.outbox)
    cure = (
        f"CREATE TRIGGER {quote(f'{options.outbox.table}_{origin.arrival}')} BEFORE INSERT ON {table}"
        f" FOR EACH ROW {_FILL.format(column=quote(origin.arrival))}"
    )
    if not filling:
        seen = f"no trigger fills {origin.arrival} by SYSDATE: {_WITHOUT}"
        yield Finding(Level.WARNING, "arrival", seen, cure)
    elif not any(map(_IN_UTC.search, filling)):
        seen = (
            f"the trigger that fills {origin.arrival} reads local time: where there is summer time it is an "
            "hour ahead for an hour each autumn, and takeovers wait"
        )
        yield Finding(Level.WARNING, "arrival", seen, f"replace the trigger: {cure}")
    elif runs != ["ENFORCE"]:
        seen = f"slave_run_triggers_for_rbr is {', '.join(runs)}: {_WITHOUT}"
        cure = "set slave_run_triggers_for_rbr = ENFORCE, as the table has a trigger where it is written, too"
        yield Finding(Level.WARNING, "arrival", seen, cure)
    else:
        yield Finding(Level.OK, "arrival", f"a trigger fills {origin.arrival} on each replica")
