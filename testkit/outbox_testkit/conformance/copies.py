"""Copies of an outbox: rows with their ids, beside a counter that has not given these out."""

from __future__ import annotations

from typing import Final

from outbox_api import DriverError

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import ALL, Box

COLUMNS: Final = "create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
FIRST: Final = 401


class CopyConformance(Conformance):
    """What logical replication or an export leaves in another database."""

    def test_a_new_record_comes_behind_those_of_a_copy_or_nobody_leads(self, box: Box) -> None:
        values, table = box.fill(3), box.options.table
        rows = {record.id: FIRST + n for n, record in enumerate(box.lead().mark(ALL))}
        box.execute(
            *(
                box.under.write_id.format(
                    table=table,
                    insert=f"INSERT INTO {table} (id, {COLUMNS})"
                    f" SELECT {id_of_copy}, {COLUMNS} FROM {table} WHERE id = {id_}",
                )
                for id_, id_of_copy in rows.items()
            ),
            *(f"DELETE FROM {table} WHERE id = {id_}" for id_ in rows),
        )
        try:
            hand = box.lead()
        except DriverError as error:
            message = str(error)
            (finding,) = (each for each in box.dialect.check() if each.cure and each.message in message)
            box.execute(finding.cure)
            hand = box.lead()
        values += box.fill(2)
        assert hand.values(ALL) == values, "the idiom's last_id tells no counter that is behind the rows"

    def test_a_table_that_is_made_anew_has_another_identity(self, box: Box) -> None:
        table = box.connect()
        former = table.identity()
        table.close()
        box.execute(f"DROP TABLE {box.options.table}")
        box.dialect.create()
        assert box.connect().identity() != former
        again = box.connect().identity()
        box.dialect.create()
        assert box.connect().identity() == again
