"""How MySQL and MariaDB tell what waits to be purged, and which transaction prevents it."""

from __future__ import annotations

from outbox_sdk.portable.upkeep_queries import UpkeepQueries

MAY_SEE = "PROCESS"
"""The privilege that shows the transactions of other users."""


def age(started: str) -> str:
    """Writes the seconds since a time of ``innodb_trx``, which is in the server's zone, not the session's."""
    return f"TIMESTAMPDIFF(SECOND, {started}, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))"


UPKEEP = UpkeepQueries(
    unit="transactions in the history list",
    dead=(
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'",
        # What every user of MariaDB may see.
        """SELECT variable_value FROM information_schema.global_status
           WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH'""",
    ),
    # With READ COMMITTED a transaction keeps a view only while it executes a statement. Whatever the
    # isolation, others keep what has happened since its first change.
    snapshot=f"""
        SELECT CASE t.trx_mysql_thread_id WHEN 0 THEN 'an XA transaction that is prepared'
                    ELSE CONCAT('session ', t.trx_mysql_thread_id, ' (user ', COALESCE(p.user, '?'),
                                COALESCE(CONCAT(' at ', NULLIF(p.host, '')), ''), ')') END,
               GREATEST({age("t.trx_started")}, 0)
        FROM information_schema.innodb_trx t
        LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
        WHERE t.trx_mysql_thread_id <> CONNECTION_ID()
          AND (t.trx_isolation_level <> 'READ COMMITTED' OR t.trx_rows_modified > 0
               OR t.trx_query IS NOT NULL)
        ORDER BY t.trx_started LIMIT 1""",  # noqa: S608 - of constants
)
