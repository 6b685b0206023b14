"""Tables of the first version: refused, migrated, and harvested by both versions in turn."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from outbox_mysql import MySqlDialect
from outbox_mysql.data_source import DataSource
from outbox_sdk import AccessDenied
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.former import FormerConformance, FormerHarvester, FormerOutbox
from outbox_testkit.conformance.under_test import Box

from .users import create_user, signed_in

# As the commit that added this dialect had them.
_END = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
TABLES = (
    f"""CREATE TABLE {{outbox}} (
    id BIGINT NOT NULL AUTO_INCREMENT,
    create_time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key {{key}} NOT NULL,
    kafka_value LONGTEXT,
    kafka_header_keys JSON,
    kafka_header_values JSON,
    leader_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (id)
) {_END}""",
    f"""CREATE TABLE {{fence}} (
    name VARCHAR(160) NOT NULL,
    lane INT NOT NULL,
    lanes INT NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder VARCHAR(1000) NOT NULL,
    since DATETIME(6) NOT NULL,
    beat DATETIME(6),
    reading LONGTEXT NOT NULL,
    transacting INT NOT NULL,
    identity VARCHAR(100) NOT NULL,
    PRIMARY KEY (name, lane)
) {_END}""",
    f"""CREATE TABLE {{letters}} (
    name VARCHAR(160) NOT NULL,
    id BIGINT NOT NULL,
    kafka_topic LONGTEXT,
    kafka_key TEXT,
    kafka_value LONGBLOB,
    kafka_header_keys LONGTEXT,
    kafka_header_values LONGTEXT,
    fate VARCHAR(10) NOT NULL,
    reason LONGTEXT NOT NULL,
    attempts INT NOT NULL,
    since DATETIME(6) NOT NULL,
    PRIMARY KEY (name, id)
) {_END}""",
)


class TestFormerMySql(FormerConformance):
    """The first version's tables, on either server in turn."""

    @pytest.fixture
    def key(self) -> str:
        """The type of keys: those of an outbox that somebody else made may be bytes."""
        return "TEXT"

    @pytest.fixture
    def former_outbox(self, under: OutboxUnderTest, key: str) -> FormerOutbox:
        letter = uuid4().hex[:8]
        words = {name: f"{name}_{letter}" for name in ("outbox", "fence", "letters")}
        tables = dict(zip(("table", "fence_table", "dead_letter_table"), words.values(), strict=True))
        # As long as a test's patience, if it counted for a migration.
        mine = {**tables, "journal_table": f"journal_{letter}", "lock_timeout": 60.0}
        under = replace(under, options={**under.options, **mine})
        with ExitStack() as stack:
            connection = Box(under, stack).application()
            for statement in TABLES:
                connection.cursor().execute(statement.format(**words, key=key))
        words |= {"now": "UTC_TIMESTAMP(6)", "shared": " LOCK IN SHARE MODE", "alone": " FOR UPDATE"}
        database = DataSource.parse(under.options["data_source"]).database
        return FormerOutbox(under, f"{database}.{words['outbox']}", words)

    @pytest.mark.parametrize("key", ["VARBINARY(200)"])
    def test_letters_get_room_for_keys_of_bytes(self, box: Box, former: FormerHarvester) -> None:
        former.note(1)
        pending = list(box.dialect.migrations())
        assert any(each.endswith("MODIFY kafka_key LONGBLOB") for each in pending)
        assert list(box.dialect.migrate()) == pending

    def test_who_may_not_is_told_what_somebody_else_may_run(
        self, box: Box, former: FormerHarvester, stack: ExitStack
    ) -> None:
        former.note(1)
        options: Any = box.options
        user = create_user(box.application(), stack)
        user.grant(f"SELECT, INSERT, UPDATE, DELETE ON {options.source.database}.*")
        limited = MySqlDialect(signed_in(options, user))
        with pytest.raises(AccessDenied, match="let somebody who may run this: ALTER TABLE") as caught:
            limited.migrate()
        connection: pymysql.Connection[Any] = box.application()
        _, statements = str(caught.value).split("may run this: ")
        for statement in statements.split("; "):
            connection.cursor().execute(statement)
        connection.commit()
        assert list(limited.migrate()) == []
        limited.connect().close()
