"""Records are stashed in Django's transactions, and its tests see them."""

from __future__ import annotations

import io
import json
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from outbox_api import ConfigError, Record, RecordError
from outbox_django import stash, stash_many
from outbox_django.test import StashedMixin, stashed

HEADERS = (("source", "shop"), ("source", None), ("é", "100%"))
RECORDS = [Record("orders", f"k{number}", f"100% é {number}", HEADERS) for number in range(3)]


@pytest.fixture(autouse=True)
def migrated(project: None) -> None:
    call_command("migrate", "outbox_django", verbosity=0)


def test_a_record_is_committed_with_the_block_or_not_at_all() -> None:
    with transaction.atomic():
        stash(RECORDS[0])
        stash_many(RECORDS[1:])
    with transaction.atomic():
        stash(RECORDS[0])
        transaction.set_rollback(True)
    assert stashed() == RECORDS
    assert stashed(topic="orders", key="k1") == [RECORDS[1]]
    assert stashed(topic="bills") == []


def test_what_cannot_be_stashed_is_told() -> None:
    with pytest.raises(ValueError, match=r"transaction\.atomic"):
        stash(RECORDS[0])
    with pytest.raises(ConfigError, match="'other' has no outbox"), transaction.atomic(using="other"):
        stash(RECORDS[0], using="other")
    with transaction.atomic(), pytest.raises(RecordError, match="topic"):
        stash(Record("no topic", "k", ""))
    call_command("migrate", "outbox_django", "zero", verbosity=0)
    with pytest.raises(DatabaseError), transaction.atomic():
        stash(RECORDS[0])


def test_values_are_bytes_where_the_project_says_so() -> None:
    call_command("migrate", "outbox_django", "zero", verbosity=0)
    with override_settings(OUTBOX={"BYTES": True}):
        call_command("migrate", "outbox_django", verbosity=0)
        with transaction.atomic():
            stash(Record("orders", "k", b"\x00\xff"))
            stash(Record("orders", "k", None))
        assert [record.value for record in stashed()] == [b"\x00\xff", None]


@pytest.mark.parametrize("how", [(), ("--all",)])
def test_a_dump_leaves_the_outbox_out(how: tuple[str, ...]) -> None:
    with transaction.atomic():
        stash(RECORDS[0])
    with redirect_stdout(io.StringIO()) as out:
        call_command("dumpdata", "outbox_django", *how)
    assert json.loads(out.getvalue()) == []
    assert stashed() == RECORDS[:1]


@pytest.mark.parametrize("model", ["stashedrecord", "deadletter"])
def test_a_fixture_writes_no_record(tmp_path: Path, model: str) -> None:
    fields = {"topic": "orders", "key": "k"}
    if model == "deadletter":
        fields |= {"name": "outbox", "status": "parked", "attempts": "1", "since": "2026-01-01T00:00:00Z"}
    fixture = tmp_path / "old.json"
    fixture.write_text(json.dumps([{"model": f"outbox_django.{model}", "pk": 1, "fields": fields}]))
    with pytest.raises(ValueError, match="records are written by"):
        call_command("loaddata", str(fixture), verbosity=0)
    assert stashed() == []


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


@pytest.mark.parametrize("kind", [TestCase, TransactionTestCase])
def test_tests_of_an_application_see_their_own_records(kind: type[unittest.TestCase]) -> None:
    class Tests(StashedMixin, kind):  # type: ignore[misc,valid-type] # a parameter
        available_apps = ("outbox_django",)

        def test_one(self) -> None:
            with transaction.atomic():
                stash(RECORDS[0])
            assert self.assertStashed(topic="orders") == RECORDS[0]

        def test_another(self) -> None:
            self.assertNotStashed()
            with transaction.atomic():
                stash_many(RECORDS)
            assert self.assertStashed(key="k2").value == RECORDS[2].value

        def test_several(self) -> None:
            with transaction.atomic():
                stash_many(RECORDS[:2])
            with pytest.raises(AssertionError, match="2 records were stashed, not one; stashed: orders 'k0'"):
                self.assertStashed()
            with pytest.raises(AssertionError, match="1 records instead of none; stashed: orders"):
                self.assertNotStashed(key="k0")

    result = run(Tests)
    assert (result.testsRun, result.failures, result.errors) == (3, [], [])


def test_a_test_that_may_touch_no_database_stashes_nothing() -> None:
    class Tests(SimpleTestCase):  # type: ignore[misc] # of a library without types
        def test_one(self) -> None:
            with pytest.raises(AssertionError, match="not allowed"), transaction.atomic():
                stash(RECORDS[0])

    stashed()  # connects
    result = run(Tests)
    assert (result.testsRun, result.failures, result.errors) == (1, [], [])
    assert stashed() == []
