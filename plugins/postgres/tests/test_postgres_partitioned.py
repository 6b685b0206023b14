"""An outbox in partitions, judged by the rules of partitioned tables."""

from __future__ import annotations

import pytest

from .outbox_hands import Outbox
from .test_postgres_check import troubles

STORED = "WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)"
PARENT = """
CREATE TABLE parts (LIKE outbox INCLUDING DEFAULTS INCLUDING GENERATED, PRIMARY KEY (id, create_time))
PARTITION BY RANGE (create_time);
CREATE SEQUENCE ids OWNED BY parts.id;
ALTER TABLE parts ALTER COLUMN id SET DEFAULT nextval('ids');
DROP TABLE outbox;
ALTER TABLE parts RENAME TO outbox;
CREATE TABLE early PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2000-01-01') {stored};
CREATE TABLE late PARTITION OF outbox FOR VALUES FROM ('2000-01-01') TO (MAXVALUE) {stored};
"""


@pytest.fixture
def parts(outbox: Outbox) -> Outbox:
    outbox.admin.execute(PARENT.format(stored=STORED).encode())
    return outbox


def test_all_is_well_with_partitions_that_leave_room(parts: Outbox) -> None:
    assert troubles(parts) == {}
    parts.fill(20)
    hand = parts.lead()
    assert len(ids := [record.id for record in hand.mark()]) == 20
    assert hand.purge(*ids) == 20


def test_each_partition_is_judged_and_each_cure_is_taken(outbox: Outbox) -> None:
    outbox.admin.execute(PARENT.format(stored="").encode())
    found = troubles(outbox)
    assert set(found) == {"fill factor", "vacuum threshold"}
    for finding in outbox.dialect.check():
        if finding.cure:
            outbox.admin.execute(finding.cure.removesuffix(", for new pages").encode())
    assert troubles(outbox) == {}


def test_a_parent_without_an_index_that_begins_with_id_is_an_error(parts: Outbox) -> None:
    parts.admin.execute("ALTER TABLE outbox DROP CONSTRAINT parts_pkey")
    assert troubles(parts)["primary key"].startswith(
        "error: no index of the partitioned table begins with id"
    )
    parts.admin.execute("CREATE INDEX ON outbox (id)")
    assert troubles(parts) == {}
