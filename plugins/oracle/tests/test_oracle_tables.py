"""What the tables ask of python-oracledb, in which order, and what they make of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Batch, DriverError, Fence, LeadershipLost, Poison
from outbox_api.portable import PortableDeadLetters, PortableTable
from outbox_api.portable.outboxes import PortableMembers
from outbox_api.portable.statements import Statements
from outbox_oracle.dialect import OracleDialect, OracleSession
from outbox_oracle.idiom import EMPTY
from outbox_oracle.options import OracleOptions

from .fake_oracle import FakeOracle, database_error

OPTIONS = OracleOptions()
FENCE = Fence(lane=1, lanes=4, token=7, epoch=2)
HELD = {r"takeovers.*FOR UPDATE": [(None, None)], r"FOR UPDATE": [(1,)]}


def connect(**replies: Any) -> tuple[FakeOracle, PortableTable]:
    fake = FakeOracle({**HELD, **replies})
    session = OracleSession(fake, OracleDialect.idiom, "Oracle database")
    return fake, PortableTable(session, OPTIONS.tables)


def marking(rows: list[Any]) -> dict[str, Any]:
    return {r"^SELECT id, kafka_topic": rows}


def test_a_mark_holds_the_fence_reads_plainly_and_claims_by_an_array() -> None:
    rows = [(number, "t", f"k{number}", "v", None, None, 1.5) for number in range(1, 31)]
    fake, table = connect(**marking(rows))
    leader = uuid4()
    assert [record.id for record in table.mark(FENCE, leader, 30)] == list(range(1, 31))
    assert fake.verbs == ["SELECT", "SELECT", "UPDATE", "commit"]
    (hold, held), (choose, chosen), (claim, claimed), _ = fake.log
    assert hold.endswith("FOR UPDATE WAIT 5")
    assert held == {"name": "OUTBOX", "lane": 1, "lanes": 4, "token": 7, "epoch": 2}
    assert choose.endswith("ORDER BY id FETCH FIRST :limit ROWS ONLY")
    assert "FOR UPDATE" not in choose
    assert (chosen["limit"], chosen["lane"], chosen["lanes"], chosen["leader"]) == (30, 1, 4, leader.bytes)
    assert claim == 'UPDATE "OUTBOX" SET leader_id = :leader WHERE id IN (:row_id)'
    assert claimed == [{"leader": leader.bytes, "row_id": number} for number in range(1, 31)]


def test_a_bounded_mark_reads_what_is_large_by_ids_and_what_is_too_large_not_at_all() -> None:
    rows = [
        (1, "t", None, EMPTY, None, None, 1.5, 7),
        (2, "t", None, None, None, None, 1.5, 900),
        (3, "t", None, None, None, None, 1.5, 5_000),
    ]
    fake, table = connect(**{
        r"AS row_size": rows,
        "NULL AS kafka_value": [(3, "t", "huge", None, None, None, None)],
        r"^SELECT id, kafka_topic": [(2, "t", None, "x" * 900, None, None, 1.5)],
    })  # fmt: skip
    marked = table.mark(FENCE, uuid4(), 30, 1_000, [f"k{number}" for number in range(1_500)])
    assert [(record.key, len(record.value or "")) for record in marked] == [("", 0), ("", 900), ("huge", 0)]
    assert [record.fault is None for record in marked] == [True, True, False]
    assert fake.verbs == ["SELECT", "SELECT", "UPDATE", "SELECT", "SELECT", "commit"]
    choose, given = fake.log[1]
    assert choose.count(" NOT IN (NVL(:key_without") == 2, "a list has a thousand at most"
    assert given["key_without0"] == "k0"


def test_an_empty_key_and_an_empty_value_are_told_from_none() -> None:
    rows = [
        (1, "t", None, EMPTY, None, None, 1.5),
        (2, "t", "k", None, '["h"]', "[null]", None),
        (3, "t", "k", EMPTY.encode(), None, None, Decimal("3600.25")),
    ]
    _, table = connect(**marking(rows))
    first, second, third = table.mark(FENCE, uuid4(), 10)
    assert (first.key, first.value, first.fault) == ("", "", None)
    assert (second.value, second.headers) == (None, [("h", None)])
    assert third.value == b""
    assert (first.created or 0) - (third.created or 0) == pytest.approx(3598.75)
    assert second.created is None, "a row need not have a time"


def test_a_lost_fence_is_rolled_back_before_anything_is_touched() -> None:
    fake = FakeOracle()
    session = OracleSession(fake, OracleDialect.idiom, "Oracle database")
    table = PortableTable(session, OPTIONS.tables)
    for act in (
        lambda: table.mark(FENCE, uuid4(), 1),
        lambda: table.purge(FENCE, uuid4(), [1]),
        lambda: table.reset(FENCE, uuid4(), [1]),
        lambda: table.advance(FENCE, [], [], 1),
        lambda: table.advance(FENCE, [Batch(((1, 9),))], [], 1),
        lambda: table.park(FENCE, uuid4(), [Poison(1, "", 1)], [1]),
    ):
        fake.log.clear()
        with pytest.raises(LeadershipLost):
            act()
        assert fake.verbs == ["SELECT", "rollback"]


@pytest.mark.parametrize("verb", ["purge", "reset"])
def test_ids_go_in_arrays_of_ten_thousand_and_rows_are_counted(verb: str) -> None:
    def gone(binds: Mapping[str, Any]) -> int:
        return int(binds["row_id"] % 2)

    fake, table = connect(**{r"WHERE id IN \(:row_id\)": gone})
    assert getattr(table, verb)(FENCE, uuid4(), range(25_000)).rows == 12_500
    changes = fake.log[1:4]  # behind them it looks whether rows are still there
    assert [len(rows) for _, rows in changes] == [10_000, 10_000, 5_000]
    assert len({sql for sql, _ in changes}) == 1
    assert fake.verbs[-1] == "commit"


def test_nothing_to_purge_asks_only_for_the_fence() -> None:
    fake, table = connect()
    assert table.purge(FENCE, uuid4(), []).rows == 0
    assert fake.verbs == ["SELECT", "commit"]


def test_an_advance_deletes_and_selects_in_one_transaction() -> None:
    fake, table = connect(**marking([(9, "t", "k", "v", None, None, 1.5)]), DELETE=8)
    finished = [Batch(((1, 8),)), Batch(((9, 20), (22, 40)))]
    advanced = table.advance(FENCE, finished, [Batch(((60, 70),))], 10)
    assert (advanced.purged, [record.id for record in advanced.records]) == (16, [9])
    assert advanced.newest == ""
    assert fake.verbs == ["SELECT", "DELETE", "DELETE", "SELECT", "commit"]
    assert fake.log[1][1] == {"first0": 1, "last0": 8}
    bounds = {name: end for name, end in fake.log[3][1].items() if name[:4] in {"firs", "last"}}
    assert sorted(bounds.values()) == [1, 8, 9, 20, 22, 40, 60, 70]


def test_a_batch_of_many_runs_is_deleted_in_array_binds_and_left_out_by_lists() -> None:
    fake, table = connect(**{r"WHERE id IN \(:row_id\)": 1, **marking([])})
    scattered = Batch.of(range(0, 60, 2))
    assert table.advance(FENCE, [scattered], [], 10).purged == 30
    assert fake.verbs == ["SELECT", "DELETE", "SELECT", "commit"]
    assert [row["row_id"] for row in fake.log[1][1]] == scattered.ids()
    assert {fake.log[2][1][f"without{n}"] for n in range(100)} == set(scattered.ids())


def test_a_selection_without_a_deletion_locks_nothing() -> None:
    fake, table = connect(**marking([(9, "t", "k", "v", None, None, 1.5)]), **{"^SELECT lane": [(1,)]})
    assert [record.id for record in table.advance(FENCE, [], [Batch(((1, 4),))], 10).records] == [9]
    assert fake.verbs == ["SELECT", "SELECT", "commit"]
    assert "FOR UPDATE" not in "".join(sql for sql, _ in fake.log)


def test_the_rows_of_a_batch_are_read_by_lists_of_ids_without_a_lock() -> None:
    # As Oracle returns them: in any order.
    rows = [(9, "t", "k", "v", None, None, 1.5), (5, "t", None, EMPTY, None, None, None)]
    fake, table = connect(**marking(rows))
    first, second = table.rows(Batch(((1, 9),)))
    assert [(each.id, each.key, each.value) for each in (first, second)] == [(5, "", ""), (9, "k", "v")]
    assert fake.verbs == ["SELECT", "commit"]
    assert {fake.log[0][1][f"id{n}"] for n in range(10)} == {*range(1, 10)}
    assert "FOR UPDATE" not in fake.log[0][0]
    assert len(table.rows(Batch(((1, 2_500),)))) == 6, "three lists of a thousand at most"


def test_parking_binds_few_ids_and_keeps_what_is_empty() -> None:
    heads = [
        (5, "t", None, EMPTY, None, None, 1.5),
        (6, "t", "k", None, None, None, 1.5),
        (8, "t", "q", "v", None, None, 1.5),
    ]
    keys = [(row[0], row[2] or "\0") for row in heads]
    fake, table = connect(**{
        r"^SELECT id, NVL.*leader_id = :leader": keys,
        r"id IN \(.*leader_id = :leader": heads,
    })  # fmt: skip
    poisons = [Poison(number, "", 3) for number in (5, 6, 8)]
    assert table.park(FENCE, uuid4(), poisons, [5, 6, 7, 8]).rows == 3
    _, _, (query, binds) = (entry for entry in fake.sent("SELECT id") if "IN" in entry[0])
    assert [binds[f"id{place}"] for place in range(10)] == [5, 6, *[8] * 8], "filled up to one of few lengths"
    assert "leader_id = :leader" in query
    sent = [binds for _, binds in fake.sent("INSERT")]
    assert [len(rows) for rows in sent] == [1, 1, 1], "their values are of different types"
    letters = [row for rows in sent for row in rows]
    assert [letter["kafka_value"] for letter in letters] == [EMPTY.encode(), None, b"v"]
    assert [letter["kafka_key"] for letter in letters] == ["", "k", "q"]


def test_a_letter_of_another_head_gives_way_to_one_whose_id_came_again() -> None:
    fake, table = connect(**{
        r"^SELECT id, NVL": [(5, "k"), (6, "q"), (7, "z")],
        r"^SELECT id, status": [(5, "parked", "k"), (6, "skipped", "q"), (7, "parked", "other")],
        r"^SELECT MIN": [(-3,)],
        r"^SELECT id, kafka_topic": [(number, "t", "k", "v", None, None, 1.5) for number in (5, 6, 7)],
    })  # fmt: skip
    assert table.park(FENCE, uuid4(), [Poison(number, "", 3) for number in (5, 6, 7)], [5, 6, 7]).rows == 3
    ((_, forgotten),) = fake.sent("DELETE")
    assert [binds["row_id"] for binds in forgotten] == [5]
    moved = [(binds["id"], binds["other"]) for sql, binds in fake.log if "SET id = " in sql]
    assert moved == [(6, -5), (7, -4)]


def test_redriving_an_empty_value_keeps_it_empty() -> None:
    rows = [(5, "t", None, EMPTY.encode(), None, None)]
    fake = FakeOracle(
        {
            **HELD,
            r"^SELECT id, NVL.*status = :status": [(5, "\0")],
            r"status = :status": rows,
            r'^SELECT "IDENTITY"': [("abc",)],
            r"^DELETE": 1,
        }
    )
    session = OracleSession(fake, OracleDialect.idiom, "Oracle database")
    letters = PortableDeadLetters(session, OPTIONS.tables, binary=False)
    assert letters.redrive([5]) == [5]
    ((_, stashed),) = fake.sent('INSERT INTO "OUTBOX"')
    assert stashed["kafka_value"] == EMPTY


def test_a_bump_makes_new_lanes_under_the_lock_of_the_notes() -> None:
    fake, table = connect(**{r'^SELECT "IDENTITY"': [("abc",)], r"^SELECT lane, token": [(0, 4)]})
    assert table.bump(3, "somebody") > 4
    assert fake.verbs == ["SELECT", "commit"] * 2 + ["SELECT", "SELECT", "INSERT", "UPDATE", "commit"]
    ((_, rows),) = fake.sent("INSERT")
    assert [(row["lane"], row["holder"]) for row in rows] == [(1, "somebody"), (2, "somebody")]


def test_a_copy_whose_ids_are_ahead_of_their_counter_is_refused() -> None:
    _, table = connect(**{r"^SELECT s.last_number": [(0,)], r"^SELECT id FROM": [(401,), (402,)]})
    with pytest.raises(DriverError, match=r"next id is to be 1, and rows with ids from 401 .* LIMIT VALUE"):
        table.bump(1, "somebody")


def test_whoever_notes_an_outbox_first_is_welcome() -> None:
    taken = database_error(1, "unique constraint (SHOP.SYS_C1) violated")
    found = [[], [("abc",)]]
    fake, table = connect(
        **{
            r'^SELECT "IDENTITY"': lambda _: found.pop(0),
            r"^INSERT INTO .*NOTES": taken,
            r"^SELECT lane, token": [(0, 0)],
        }
    )
    assert table.bump(1, "somebody") > 0
    assert "rollback" in fake.verbs


def test_moments_are_read_as_the_sessions_zone_which_is_utc() -> None:
    since = datetime(2026, 5, 4, 12, 0, 0)  # noqa: DTZ001 - as the driver returns it
    row = (0, 1, 5, 1, "me", since, None, None, "{}")
    _, table = connect(**{r"^SELECT lane, lanes": [row]})
    (lane_status,) = table.lane_statuses()
    assert lane_status.since == datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
    assert (lane_status.heartbeat_at, lane_status.age, lane_status.metrics) == (None, None, {})


def test_an_error_in_the_middle_rolls_everything_back() -> None:
    fake, table = connect(**{r"^DELETE": database_error(60, "deadlock detected while waiting for resource")})
    with pytest.raises(DriverError, match="cannot purge in Oracle database: ORA-00060: deadlock") as caught:
        table.purge(FENCE, uuid4(), [1, 2])
    assert caught.value.retryable
    assert fake.verbs == ["SELECT", "DELETE", "rollback"]


def test_a_closed_connection_is_worth_a_new_one() -> None:
    _, table = connect()
    table.close()
    with pytest.raises(DriverError) as caught:
        table.backlog()
    assert caught.value.retryable


def test_rows_are_fetched_by_the_thousand() -> None:
    fake, _ = connect()
    session = OracleSession(fake, OracleDialect.idiom, "here")
    with session.transaction("look"):
        assert (session._cursor.arraysize, session._cursor.prefetchrows) == (1000, 1001)


def test_long_values_are_sent_by_themselves_in_their_place() -> None:
    fake, _ = connect()
    session = OracleSession(fake, OracleDialect.idiom, "here")
    rows = [{"id": number, "kafka_value": "v" * size} for number, size in enumerate((1, 2, 5000, 3))]
    with session.transaction("stash"):
        session.execute_many('INSERT INTO "T" (id, kafka_value) VALUES ({id}, {kafka_value})', rows)
    sent = [binds for _, binds in fake.sent("INSERT")]
    assert [[row["id"] for row in (each if isinstance(each, list) else [each])] for each in sent] == [
        [0, 1],
        [2],
        [3],
    ]


def test_a_member_takes_its_own_row_or_a_free_one_before_it_adds_one() -> None:
    rows = [
        ("alive", "g", 2, 1.5, None),
        ("left", "g", None, 3.0, None),
        ("silent", "g", 1, 700.0, None),
        ("apart", "h", 4, 1.0, None),
    ]
    fake = FakeOracle({"^UPDATE": 0, "^SELECT member": rows})
    sql = Statements(OracleDialect.idiom, OPTIONS.tables)
    members = PortableMembers(OracleSession(fake, OracleDialect.idiom, "Oracle database"), sql)
    assert members.note("g", "one", 0, 60) == {"alive": 2, "one": 0}
    tried = fake.sent("UPDATE")
    assert [values["former"] for _, values in tried] == ["one", "left", "silent"]
    assert {(each["member"], each["member_group"], each["leads"], each["seconds"]) for _, each in tried} == {
        ("one", "g", 0, 600)
    }
    [(_, added)] = fake.sent("INSERT")
    assert (added["member"], added["member_group"], added["leads"]) == ("one", "g", 0)
    assert fake.verbs.count("commit") == 5, "each statement locks one row, and lets go of it"
