"""What the tables ask of python-tds, in which order, and what they make of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytds
import pytest
from outbox_api import Batch, DriverError, Fence, LeadershipLost, Poison
from outbox_api.portable import PortableDeadLetters, PortableTable
from outbox_api.portable.outboxes import PortableMembers
from outbox_api.portable.statements import Statements
from outbox_sqlserver.dialect import SqlServerDialect, SqlServerSession, _typed
from outbox_sqlserver.options import SqlServerOptions

from .fake_sqlserver import FakeSqlServer, server_error

OPTIONS = SqlServerOptions()
FENCE = Fence(lane=1, lanes=4, token=7, epoch=2)
HOLD = r"WITH \((REPEATABLEREAD|XLOCK)"


def connect(
    replies: dict[str, Any] | None = None, *, held: bool = True
) -> tuple[FakeSqlServer, PortableTable]:
    fake = FakeSqlServer({**({HOLD: [(1,)]} if held else {}), **(replies or {})})
    session = SqlServerSession(fake, SqlServerDialect.idiom, "SQL Server")
    return fake, PortableTable(session, OPTIONS.tables)


CHOOSE = r"^SELECT TOP"


def test_a_mark_holds_the_fence_reads_versions_and_claims_by_ids() -> None:
    rows = [(number, "t", "k", f"v{number}", None, None, 1.5) for number in (1, 2, 3)]
    fake, table = connect({CHOOSE: rows, r"^UPDATE target": 3})
    leader = uuid4()
    marked = table.mark(FENCE, leader, 30)
    assert [record.value for record in marked] == ["v1", "v2", "v3"]
    assert fake.verbs == ["SELECT", "SELECT", "UPDATE", "commit"]
    (hold, held), (_, given), (_, claimed), _ = fake.log
    assert "FROM [outbox_fence] WITH (REPEATABLEREAD, ROWLOCK) WHERE name = @name" in hold
    assert held == {"name": "outbox", "lane": 1, "lanes": 4, "token": 7, "epoch": 2}
    assert (given["leader"], given["limit"]) == (leader, 30)
    assert (claimed["leader"], json.loads(claimed["ids"])) == (leader, [1, 2, 3])
    assert fake.cancelled == 0


def test_a_bounded_mark_reads_what_is_large_by_ids_and_what_is_too_large_not_at_all() -> None:
    sizes = {1: 10, 2: 900, 3: 5_000, 4: 20, 5: 90}
    small = {number: ("k", "v") if size <= 31 else (None, None) for number, size in sizes.items()}
    rows = [(number, "t", *small[number], None, None, None, size) for number, size in sizes.items()]
    fake, table = connect({
        CHOOSE: rows,
        r"^UPDATE target": 4,
        "NULL AS kafka_value": [(3, "t", "huge", None, None, None, None)],
        r"^SELECT id, kafka_topic": [(2, "t", "large", "x" * 900, None, None, 1.5)],
    })  # fmt: skip
    marked = table.mark(FENCE, uuid4(), 30, 1_000, {"held"})
    assert [(record.id, record.key, len(record.value or "")) for record in marked] == [
        (1, "k", 1), (2, "large", 900), (3, "huge", 0), (4, "k", 1)
    ]  # fmt: skip
    assert [record.fault is None for record in marked] == [True, True, False, True]
    assert "5,000 bytes" in (marked[2].fault or "")
    assert fake.verbs == ["SELECT", "SELECT", "UPDATE", "SELECT", "SELECT", "commit"]
    given = fake.log[1][1]
    assert (given["small"], json.loads(given["key_without"])) == (66, ["held"])
    assert [json.loads(values["ids"]) for _, values in fake.log[2:5]] == [[1, 2, 3, 4], [2], [3]]
    assert fake.cancelled == 0


def test_a_lost_fence_is_rolled_back_before_anything_is_touched() -> None:
    fake, table = connect(held=False)
    acts: list[Callable[[], object]] = [
        lambda: table.mark(FENCE, uuid4(), 1),
        lambda: table.purge(FENCE, uuid4(), [1]),
        lambda: table.reset(FENCE, uuid4(), [1]),
        lambda: table.advance(FENCE, [], [], 1),
        lambda: table.advance(FENCE, [Batch(((1, 9),))], [], 1),
        lambda: table.park(FENCE, uuid4(), [Poison(1, "", 1)], [1]),
    ]
    for act in acts:
        fake.log.clear()
        with pytest.raises(LeadershipLost):
            act()
        assert fake.verbs == ["SELECT", "rollback"]


@pytest.mark.parametrize("verb", ["purge", "reset"])
def test_ids_are_one_parameter_however_many(verb: str) -> None:
    fake, table = connect({r"^(DELETE|UPDATE) target": 9_999})
    assert getattr(table, verb)(FENCE, uuid4(), range(25_000)).rows == 9_999
    _, (sql, values), *_ = fake.log  # behind it it looks whether rows are still there
    assert json.loads(values["ids"]) == list(range(25_000))
    assert "OPENJSON(@ids)" in sql
    assert fake.verbs[-1] == "commit"
    assert fake.cancelled == 0


def test_nothing_to_purge_asks_only_for_the_fence() -> None:
    fake, table = connect()
    assert table.purge(FENCE, uuid4(), []).rows == 0
    assert fake.verbs == ["SELECT", "commit"]


def test_an_advance_deletes_a_batch_by_its_ids_and_selects_in_one_transaction() -> None:
    fake, table = connect({r"^DELETE": 2, CHOOSE: [(9, "t", "k", "v", None, None, 1.5)]})
    advanced = table.advance(FENCE, [Batch(((1, 40),))], [Batch.of(range(50, 90, 2))], 10)
    assert (advanced.purged, [record.id for record in advanced.records]) == (2, [9])
    assert fake.verbs == ["SELECT", "DELETE", "SELECT", "commit"]
    assert json.loads(fake.log[1][1]["ids"]) == [*range(1, 41)]
    assert json.loads(fake.log[2][1]["without"]) == [*range(1, 41), *range(50, 90, 2)]


def test_the_rows_of_a_batch_are_read_by_their_ids_without_a_lock() -> None:
    rows = [(9, "t", "k", "v", None, None, 1.5), (5, "t", "k", "", None, None, None)]
    fake, table = connect({r"^SELECT id, kafka_topic.*OPENJSON": rows})
    assert [(each.id, each.value) for each in table.rows(Batch.of(range(5, 11, 2)))] == [(5, ""), (9, "v")]
    assert fake.verbs == ["SELECT", "commit"]
    assert json.loads(fake.log[0][1]["ids"]) == [5, 7, 9]
    assert " WITH (" not in fake.log[0][0]


def test_parking_keeps_the_head_as_bytes() -> None:
    heads = [(5, "t", "", "", None, None), (6, "t", "k", None, None, None), (7, "t", "q", "é", None, None)]
    keys = [(row[0], f"{row[2]}.") for row in heads]
    fake, table = connect({r"^SELECT id, \(.*OPENJSON": keys, r"^SELECT id, kafka_topic.*OPENJSON": heads})
    assert table.park(FENCE, uuid4(), [Poison(number, "x", 3) for number in (5, 6, 7)], [5, 6, 7]).rows == 3
    letters = [values for _, values in fake.sent("INSERT")]
    assert [letter["kafka_value"] for letter in letters] == [b"", None, "é".encode()]
    assert [letter["kafka_key"] for letter in letters] == ["", "k", "q"]


@pytest.mark.parametrize("binary", [False, True])
def test_redriving_stashes_what_the_table_holds(binary: bool) -> None:
    rows = [(5, "t", "k", b"v", None, None)]
    fake = FakeSqlServer({HOLD: [(1,)], r"status = @status": rows, r"^SELECT \[identity\]": [("abc",)]})
    session = SqlServerSession(fake, SqlServerDialect.idiom, "SQL Server")
    letters = PortableDeadLetters(session, OPTIONS.tables, binary=binary)
    assert letters.redrive([5]) == [5]
    ((_, stashed),) = fake.sent("INSERT INTO [outbox] ")
    assert stashed["kafka_value"] == (b"v" if binary else "v")


def test_a_bump_excludes_everybody_and_makes_lanes() -> None:
    fake, table = connect({r"^SELECT \[identity\] FROM": [("abc",)], r"^SELECT lane, token": [(0, 4)]})
    assert table.bump(2, "somebody") > 4
    assert fake.verbs == ["SELECT", "commit"] * 2 + ["SELECT", "SELECT", "INSERT", "UPDATE", "commit"]
    assert "WITH (XLOCK, HOLDLOCK, ROWLOCK)" in fake.log[4][0]
    assert "[identity]" in fake.sent("INSERT")[0][0]


def test_a_copy_whose_ids_are_ahead_of_their_counter_is_refused() -> None:
    _, table = connect({r"IDENT_CURRENT": [(1,)], r"^SELECT TOP .* id FROM": [(401,), (402,)]})
    with pytest.raises(DriverError, match=r"next id is to be 2, and rows with ids from 401 .* CHECKIDENT"):
        table.bump(1, "somebody")


def test_whoever_notes_an_outbox_first_is_welcome() -> None:
    taken = server_error(2627, "Violation of PRIMARY KEY constraint")
    found = [[], [("abc",)]]
    fake, table = connect(
        {
            r"^SELECT \[identity\]": lambda _: found.pop(0),
            r"^INSERT INTO .*notes": taken,
            r"^SELECT lane, token": [(0, 0)],
        }
    )
    assert table.bump(1, "somebody") > 0
    assert "rollback" in fake.verbs


def test_moments_are_utc() -> None:
    since = datetime(2026, 5, 4, 12, 0, 0)  # noqa: DTZ001 - as the driver returns it
    _, table = connect({r"^SELECT lane, lanes": [(0, 1, 5, 1, "me", since, None, None, "{}")]})
    assert table.lane_statuses()[0].since == datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)


def test_an_error_in_the_middle_rolls_everything_back() -> None:
    deadlock = server_error(1205, "Transaction was deadlocked on lock resources")
    fake, table = connect({r"^DELETE": deadlock})
    with pytest.raises(DriverError, match=r"cannot purge in SQL Server: .*deadlocked") as caught:
        table.purge(FENCE, uuid4(), [1, 2])
    assert caught.value.retryable
    assert fake.verbs == ["SELECT", "DELETE", "rollback"]


def test_a_closed_connection_is_worth_a_new_one() -> None:
    _, table = connect()
    table.close()
    with pytest.raises(DriverError) as caught:
        table.backlog()
    assert caught.value.retryable


def test_short_texts_share_one_type_and_long_ones_have_no_end() -> None:
    short = _typed("🌍" * 2000)
    assert short.type.get_declaration() == "NVARCHAR(4000)"  # type: ignore[attr-defined]  # the driver's
    assert _typed("🌍" * 2000 + "x") == "🌍" * 2000 + "x"
    assert isinstance(_typed(b"x"), pytds.Binary)
    assert _typed(5) == 5


def test_a_member_takes_its_own_row_or_a_free_one_before_it_adds_one() -> None:
    rows = [
        ("alive", "g", 2, 1.5, None),
        ("left", "g", None, 3.0, None),
        ("silent", "g", 1, 700.0, None),
        ("apart", "h", 4, 1.0, None),
    ]
    fake = FakeSqlServer({"^UPDATE": 0, "^SELECT member": rows})
    sql = Statements(SqlServerDialect.idiom, OPTIONS.tables)
    members = PortableMembers(SqlServerSession(fake, SqlServerDialect.idiom, "SQL Server"), sql)
    assert members.note("g", "one", 0, 60) == {"alive": 2, "one": 0}
    tried = fake.sent("UPDATE")
    assert [values["former"] for _, values in tried] == ["one", "left", "silent"]
    assert {(each["member"], each["member_group"], each["leads"], each["seconds"]) for _, each in tried} == {
        ("one", "g", 0, 600)
    }
    [(_, added)] = fake.sent("INSERT")
    assert (added["member"], added["member_group"], added["leads"]) == ("one", "g", 0)
    assert fake.verbs.count("commit") == 5, "each statement locks one row, and lets go of it"
