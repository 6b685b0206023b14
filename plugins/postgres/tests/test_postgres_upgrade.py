"""A database made by an earlier version: harvested as it is, while processes of that version still run."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_postgres import layout
from outbox_sdk import AccessDenied, DriverError, Level, TransactionalLane
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask

RANDOM = "encode(substr(sha256((random()::text || clock_timestamp())::bytea), 1, 16), 'hex')::uuid"
FORMER_FENCE = f"""
DROP TABLE outbox_fence;
CREATE TABLE outbox_fence (
    name TEXT NOT NULL,
    lane INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    beat TIMESTAMP WITH TIME ZONE,
    reading JSONB NOT NULL DEFAULT '{{}}',
    releases BIGINT NOT NULL DEFAULT 0,
    transacting INTEGER NOT NULL DEFAULT 0,
    identity UUID NOT NULL DEFAULT {RANDOM},
    PRIMARY KEY (name, lane)
) WITH (fillfactor = 10)
"""
NAME = "public.outbox"

# What the version before sends to the fence.
FORMER_BUMP = """
WITH next AS (
    SELECT coalesce(max(token), 0) + 1 AS token FROM outbox_fence WHERE name = %(name)s AND lane >= 0
), numbered AS (
    SELECT lane FROM outbox_fence WHERE name = %(name)s AND lane >= 0
    UNION SELECT generate_series(0, %(lanes)s - 1)
)
INSERT INTO outbox_fence AS f (name, lane, lanes, token, attempt, holder, since)
SELECT %(name)s, lane, %(lanes)s, next.token, 0, 'former', clock_timestamp()
FROM numbered, next ORDER BY lane
ON CONFLICT (name, lane) DO UPDATE
SET lanes = excluded.lanes, token = excluded.token, attempt = 0, holder = excluded.holder,
    since = excluded.since, beat = NULL, reading = '{}'
RETURNING f.token
"""
FORMER_ENTER = """
UPDATE outbox_fence SET attempt = attempt + 1
WHERE name = %s AND lane = 0 AND lanes = %s AND token = %s RETURNING attempt, identity
"""
FORMER_TRANSACT = """
UPDATE outbox_fence SET transacting = CASE WHEN %s THEN lanes ELSE 0 END
WHERE name = %s AND lane = 0 RETURNING lane
"""
FORMER_TRANSACTING = "SELECT lane, transacting FROM outbox_fence WHERE name = %s AND transacting > 0"


@pytest.fixture
def former(outbox: Outbox) -> Outbox:
    outbox.admin.execute(FORMER_FENCE)
    ask(outbox.admin, FORMER_BUMP.replace("%(lanes)s", "2").replace("%(name)s", f"'{NAME}'"))
    ask(outbox.admin, FORMER_TRANSACT, True, NAME)
    return outbox


def test_the_former_fence_is_harvested_without_a_manual_step(former: Outbox) -> None:
    assert {f.level for f in former.dialect.check() if f.subject == "fence table"} == {Level.OK}
    former.fill(3)
    identity = ask(former.admin, "SELECT identity FROM outbox_fence WHERE lane = 0").hex
    with ThreadPoolExecutor(6) as pool:
        tables = list(pool.map(lambda _: former.connect(), range(6)))
    table = tables[0]
    assert table.transactional_lanes() == {0: TransactionalLane(2)}
    fence = table.enter(0, 1, table.bump(1, "new"))
    assert fence.token == 2
    assert identity.startswith(fence.identity)
    assert len(table.mark(fence, uuid4(), 10)) == 3
    table.set_transactional(fence, TransactionalLane(1, "sender", "place"))
    assert table.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}
    assert len({each.identity() for each in tables}) == 1


def test_create_adds_what_is_missing_too(former: Outbox) -> None:
    assert former.dialect.create() == []
    assert ask(former.admin, "SELECT count(*) FROM outbox_fence WHERE sender = '' AND marker_place = ''") == 2


def test_processes_of_the_former_version_go_on(former: Outbox) -> None:
    # One that was started before, its statements prepared.
    old = former.session(autocommit=True, prepare_threshold=0)

    def lead() -> int:
        bump = old.execute(FORMER_BUMP, {"name": NAME, "lanes": 2}).fetchall()
        token = int(bump[0][0])
        assert old.execute(FORMER_ENTER, (NAME, 2, token)).rowcount == 1
        assert old.execute(FORMER_TRANSACT, (True, NAME)).rowcount == 1
        assert old.execute(FORMER_TRANSACTING, (NAME,)).fetchall() == [(0, 2)]
        return token

    token = lead()
    table = former.connect()
    identity = table.identity()
    assert lead() == token + 1
    assert table.bump(2, "new") == token + 2
    assert lead() == token + 3
    assert [lane_status.holder for lane_status in table.lane_statuses()] == ["former"] * 2
    assert table.identity() == identity


@pytest.mark.parametrize("lacking", [["transacting"], ["identity", "releases", "sender", "transacting"]])
def test_who_may_not_alter_the_fence_is_told_what_to_run(
    former: Outbox, make_outbox: MakeOutbox, lacking: list[str]
) -> None:
    former.connect()
    for column in lacking:
        former.admin.execute(f"ALTER TABLE outbox_fence DROP COLUMN {column}")
    name = f"reader_{uuid4().hex[:8]}"
    former.admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
    try:
        former.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}")
        box = make_outbox(make_conninfo(former.dsn, user=name, password="s3cret"))
        with pytest.raises(AccessDenied, match=f"lacks {', '.join(lacking)}") as caught:
            box.connect()
        (finding,) = [f for f in box.dialect.check() if f.subject == "fence table"]
        assert finding.level == Level.ERROR
        statement = re.findall(r"ALTER TABLE .*", str(caught.value))[0]
        assert statement in (finding.cure or "")
        former.admin.execute(statement)
        hand = box.lead()
        assert hand.mark() == []
        assert hand.table.transactional_lanes() == {}
        hand.table.close()
    finally:
        former.admin.execute(f"DROP OWNED BY {name}")
        former.admin.execute(f"DROP ROLE {name}")


def test_a_fence_that_is_in_use_is_altered_by_the_next_try(
    former: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "UPGRADE_PATIENCE", "50ms")
    former.fill(1)
    busy = former.session()
    busy.execute("SELECT FROM outbox_fence")
    with pytest.raises(DriverError, match="another transaction holds the lock") as caught:
        former.connect()
    assert caught.value.retryable
    busy.rollback()
    assert len(former.lead().mark()) == 1
