"""What is erased of a key, and what is said of it."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from outbox_api import DeadLetterStatus, Poison, Record, Seam, Stasher
from outbox_api.seams.parking import LONGEST_KEY
from outbox_core import operations
from outbox_core.config import configure, parse
from outbox_core.operations import KeyParked, Operator, Verb
from outbox_core.operations.erasing import digest
from outbox_core.settings import HarvestSettings

from .cli_runner import outbox
from .fakes import FakeDialect, made

KEY = "customer-4711"
ALICE = Operator("alice", "cli", f"{KEY} asks to be forgotten")


@pytest.fixture
def dialect() -> FakeDialect:
    return FakeDialect()


@pytest.fixture
def box(dialect: FakeDialect) -> HarvestSettings:
    """An outbox in memory."""
    return replace(parse("harvest: {}", "f.yaml", {}).harvest, dialect=made(Seam.DIALECT, dialect))


def test_it_goes_in_steps_and_says_how_far_it_is(box: HarvestSettings, dialect: FakeDialect) -> None:
    steps: list[int] = []
    done = operations.erase(box, KEY, ALICE, advance=steps.append)
    assert steps == [1000, 500]
    assert (done.kept, done.waiting, done.tombstone, dialect.left.stashed) == (1500, 3, "", [])
    assert operations.erase(box, KEY, ALICE).kept == 0


def test_what_is_stashed_meanwhile_waits(box: HarvestSettings, dialect: FakeDialect) -> None:
    def stash(_: int) -> None:
        dialect.left.waiting += 1

    assert operations.erase(box, KEY, ALICE, "customers", stash).waiting == 5
    assert (operations.entries(box)[0].outcome or "").endswith(", 5 to be delivered")


def test_the_journal_does_not_name_the_key(box: HarvestSettings) -> None:
    operations.erase(box, KEY, ALICE)
    [entry] = operations.entries(box)
    assert entry.action.verb == Verb.ERASE
    assert entry.action.subject == f"key {digest(KEY)}"
    assert entry.action.reason == f"{digest(KEY)} asks to be forgotten"


@pytest.mark.parametrize(
    ("key", "text", "erased"),
    [
        (KEY, f"2 records, key '{KEY}' (record 1), key 'b' (record 2)", True),
        (KEY, f"she is {KEY}, and asks", True),
        (KEY, f"key '{KEY}0' (record 1)", False),
        ("7", "key '7' (record 17), lane 7", True),
        ("7", "record 7", False),
        ("it's\n", """key "it's\\n" (record 1)""", True),
        ("x" * 1000, f"key {'x' * LONGEST_KEY!r}… (record 1)", True),
    ],
)
def test_quotes_in_the_journal(
    key: str, text: str, erased: bool, box: HarvestSettings, dialect: FakeDialect
) -> None:
    dialect.left.texts = [text]
    done = operations.erase(box, key, ALICE)
    assert done.journal == erased
    assert (digest(key) in dialect.left.texts[0]) is erased
    if erased and key != "7":
        assert key[:LONGEST_KEY] not in dialect.left.texts[0]
    if key == "7" and erased:
        assert dialect.left.texts == [f"key {digest('7')} (record 17), lane 7"]


@pytest.mark.parametrize("key", ["é" * 1000, "'" + "x" * 999, "😀" * 3000, "customer-4711"])
@pytest.mark.parametrize("room", [2000, 1999])
def test_a_quote_that_the_journal_has_cut_is_erased(
    key: str, room: int, box: HarvestSettings, dialect: FakeDialect
) -> None:
    text = f"key {key[:LONGEST_KEY]!r}"
    text = f"{'.' * max(0, 2009 - len(text.encode()))}{text}".encode()[:room].decode(errors="ignore")
    dialect.left.texts = [text]
    assert operations.erase(box, key, ALICE).journal == 1
    assert digest(key) in dialect.left.texts[0]
    assert key[:5] not in dialect.left.texts[0]


def test_a_text_that_fits_keeps_its_end(box: HarvestSettings, dialect: FakeDialect) -> None:
    dialect.left.texts = ["she asks for custom"]
    assert operations.erase(box, KEY, ALICE).journal == 0


def test_a_parked_key_is_refused(box: HarvestSettings, dialect: FakeDialect) -> None:
    dialect.left.parked = 1
    with pytest.raises(KeyParked, match="outbox parked skip"):
        operations.look_for_key(box, KEY)
    with pytest.raises(KeyParked, match="outbox parked skip"):
        operations.erase(box, KEY, ALICE)
    assert dialect.left.kept == 1500
    assert operations.entries(box) == []


def test_a_tombstone_comes_last(box: HarvestSettings, dialect: FakeDialect) -> None:
    assert operations.erase(box, KEY, ALICE, "customers").tombstone == "customers"
    assert dialect.left.stashed == [Record("customers", KEY, None)]


def text(cell: object) -> str:
    return bytes(cell).decode(errors="replace") if isinstance(cell, bytes | memoryview) else str(cell)


class Real:
    """An outbox with kept records in a database."""

    def __init__(self, folder: Path, driver: str, source: str) -> None:
        harvest = {
            "dialect": {"driver": driver, "keep": {"for": "24h"}},
            "dataSource": source,
            "elector": "static",
            "engine": "inline",
        }
        self.file = folder / "outbox.yaml"
        self.file.write_text(json.dumps({"harvest": harvest}))
        self.settings = configure({"harvest": harvest}, variables={}).harvest
        self.dialect = self.settings.dialect.create()
        self.dialect.create()
        self.stasher = Stasher("outbox", driver)

    def stash(self, *records: Record) -> None:
        with closing(self.dialect.stash_connection()) as connection:
            self.stasher.stash_many(connection, records)
            connection.commit()

    def deliver(self) -> None:
        """Purges what is in the outbox."""
        with closing(self.dialect.connect()) as table:
            fence, leader = table.enter(0, 1, table.bump(1, "test")), uuid4()
            table.purge(fence, leader, [each.id for each in table.mark(fence, leader, 10_000)])

    def park(self, key: str) -> None:
        with closing(self.dialect.connect()) as table:
            fence, leader = table.enter(0, 1, table.bump(1, "test")), uuid4()
            ids = [each.id for each in table.mark(fence, leader, 10_000) if each.key == key]
            assert table.park(fence, leader, [Poison(ids[0], "too large", 5)], ids).rows == 1

    def ids_of_letters(self) -> list[int]:
        return [each.record.id for each in operations.letters(self.settings)]

    def everything(self) -> dict[str, str]:
        """Returns all that each table holds, as text."""
        held = {}
        with closing(self.dialect.session()) as session:
            tables = self.dialect.names(session)
            for name, table in zip(tables._fields, tables, strict=True):
                rows = session.query("read all", f"SELECT * FROM {session.idiom.quote_table(table)}")
                held[name] = " ".join(text(cell) for row in rows for cell in row)
        return held


@pytest.fixture(params=["postgres", "mysql", "mariadb", "sqlite"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Real:
    source = (
        tmp_path / "shop.db" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_dsn")
    )
    return Real(tmp_path, {"mariadb": "mysql"}.get(request.param, request.param), str(source))


def test_no_table_has_the_key_afterwards(real: Real) -> None:
    mine = [Record("orders", KEY, f"v{n}", (("h", "1"),)) for n in range(2500)]
    real.stash(*mine, Record("orders", f"{KEY}0", "another"), Record("orders", KEY.upper(), "another"))
    real.deliver()
    real.stash(Record("orders", KEY, "poison"))
    real.park(KEY)
    refused = outbox(real.file, "forget", "--key", KEY, "--yes")
    assert refused.returncode != 0
    assert "outbox parked skip" in refused.stderr
    bob = Operator("bob", "cli", f"{KEY} must not be delivered")
    assert operations.change(real.settings, Verb.SKIP, real.ids_of_letters(), bob).changed
    assert {name for name, held in real.everything().items() if KEY in held} >= {
        "kept",
        "dead_letters",
        "journal",
    }
    done = outbox(real.file, "forget", "--key", KEY, "--reason", f"{KEY} asks", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kept"], told["dead_letters"], told["journal"], told["waiting"]) == (2500, 1, 1, 0)
    assert told["key"] == digest(KEY)
    assert KEY not in done.stdout
    left = {name: held.replace(f"{KEY}0", "") for name, held in real.everything().items()}
    assert [name for name, held in left.items() if KEY in held] == []
    assert KEY.upper() in left["kept"]
    assert "another" in left["kept"]
    assert digest(KEY) in left["journal"]
    assert operations.letters(real.settings, DeadLetterStatus.SKIPPED) == []


def test_what_waits_stays_and_a_tombstone_follows(real: Real) -> None:
    real.stash(Record("orders", KEY, "v"), Record("orders", "other", "v"))
    done = outbox(real.file, "forget", "--key", KEY, "--tombstone", "customers", "--yes")
    assert done.returncode == 0, done.stderr
    assert "1 records wait in the outbox" in done.stderr
    with closing(real.dialect.watch()) as view:
        rows = view.peek(0, 10)
    assert [(each.topic, each.key, each.value) for each in rows] == [
        ("orders", KEY, "v"),
        ("orders", "other", "v"),
        ("customers", KEY, None),
    ]


def test_what_cannot_be_a_key_or_a_topic_is_refused(tmp_path: Path) -> None:
    for arguments in (["--key", ""], ["--key", "k", "--tombstone", "no topic"]):
        assert outbox(None, "forget", *arguments, "--yes").returncode == 2
