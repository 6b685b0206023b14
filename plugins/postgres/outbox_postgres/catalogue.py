"""Reads from the server's catalogue what is in a database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from outbox_api import Origin
from outbox_api.portable import Session, TableName
from outbox_api.portable.column_facts import ColumnFacts
from outbox_api.portable.given_ids import ids_behind
from outbox_api.portable.outboxes import TELLING_COLUMNS

from outbox_postgres.ddl import PostgresIdiom
from outbox_postgres.options import QuotedName
from outbox_postgres.search_path import Connection

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       coalesce(nullif(b.typname, ''), t.typname), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_type AS b ON b.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
_RELATION = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text
FROM unnest($1::text[]) WITH ORDINALITY AS candidate (name, place)
JOIN pg_class AS c ON c.oid = to_regclass(candidate.name) JOIN pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY candidate.place LIMIT 1
"""
_SPELLED_OTHERWISE = """
SELECT c.oid::regclass::text FROM pg_class AS c
WHERE lower(c.relname) = lower($1::text) AND c.relname <> $1::text AND c.relkind IN ('r', 'p')
"""
_PRIVILEGES = """
SELECT wanted FROM unnest($2::text[]) AS wanted
WHERE NOT CASE WHEN wanted IN ('SELECT', 'INSERT', 'UPDATE') THEN has_any_column_privilege($1::oid, wanted)
               ELSE has_table_privilege($1::oid, wanted) END
"""
_MISSING_TO_INSERT = """
SELECT format('INSERT (%s) ON %s', string_agg(quote_ident(attname), ', ' ORDER BY attnum), $1::oid::regclass)
FROM pg_attribute
WHERE attrelid = $1::oid AND attname = ANY ($2::text[])
  AND NOT has_column_privilege(attrelid, attnum, 'INSERT')
HAVING count(*) > 0
UNION ALL
SELECT format('USAGE ON SEQUENCE %s', s.seqrelid::regclass)
FROM pg_attrdef AS f
JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
                   AND d.refclassid = 'pg_class'::regclass
JOIN pg_sequence AS s ON s.seqrelid = d.refobjid
WHERE f.adrelid = $1::oid AND NOT has_sequence_privilege(s.seqrelid, 'USAGE, UPDATE')
"""
SEQUENCE_OF = """
SELECT s.seqrelid::bigint
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
JOIN pg_depend AS o ON o.refclassid = 'pg_class'::regclass AND o.refobjid = a.attrelid
                   AND o.refobjsubid = a.attnum AND o.classid = 'pg_class'::regclass
                   AND o.deptype IN ('a', 'i')
JOIN pg_sequence AS s ON s.seqrelid = o.objid
WHERE a.attrelid = {} AND a.attname = 'id'
  AND s.seqcache = 1 AND s.seqincrement = 1 AND NOT s.seqcycle
  AND (a.attidentity <> '' OR EXISTS (
      SELECT FROM pg_attrdef AS f
      JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
      WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND d.refobjid = s.seqrelid))
  -- A partition that rows are written into by its own name may have another default.
  AND NOT EXISTS (
      SELECT FROM pg_partition_tree(a.attrelid) AS t
      JOIN pg_attribute AS p ON p.attrelid = t.relid AND p.attname = 'id' AND p.attidentity = ''
      JOIN pg_attrdef AS f ON f.adrelid = p.attrelid AND f.adnum = p.attnum
      WHERE NOT EXISTS (
          SELECT FROM pg_depend AS d
          WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refobjid = s.seqrelid))
"""
"""The sequence that gives out the ids of a table, one by one and in order, given the table's object id.

With another increment an application usually gives out the ids of each step itself, to any transaction.
"""
SEQUENCES = """
FROM pg_attribute AS a
LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
JOIN pg_depend AS d ON CASE WHEN a.attidentity <> ''
    THEN d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
         AND d.classid = 'pg_class'::regclass AND d.deptype = 'i'
    ELSE d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass END
JOIN pg_sequence AS s ON s.seqrelid = CASE WHEN a.attidentity <> '' THEN d.objid ELSE d.refobjid END
WHERE a.attrelid = $1::oid
"""
"""The columns of a table whose numbers sequences give out: the sequence of an identity, or in a default."""
RISING = """AND s.seqincrement > 0 AND NOT s.seqcycle
  AND (a.attidentity <> ''
       OR pg_get_expr(f.adbin, f.adrelid) = format('nextval(%L::regclass)', s.seqrelid::regclass))"""
"""Those of which each number is greater than the ones before, and is the column's as it is."""
_STEPS = f"""
SELECT a.attname, CASE WHEN s.seqcycle THEN -1 ELSE 1 END * s.seqincrement * s.seqcache
{SEQUENCES} AND a.attnum > 0"""
_COUNTERS = f"""
SELECT s.seqrelid::regclass::text, has_sequence_privilege(s.seqrelid, 'SELECT')
{SEQUENCES} AND a.attname = 'id' {RISING}
"""
_KEEPERS = r"""
SELECT format('trigger %I may keep rows from being deleted, as its function can return NULL', t.tgname),
       'DROP TRIGGER ' || quote_ident(t.tgname) || ' ON ' || $1::oid::regclass
FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE t.tgrelid = $1::oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
  AND t.tgtype & 1 <> 0 AND t.tgtype & 2 <> 0 AND t.tgtype & 8 <> 0 AND p.prosrc ~* '\mreturn\s+null\M'
UNION ALL
SELECT 'row security may hide rows from this user, or keep them from being deleted',
       format('ALTER ROLE %I BYPASSRLS, or ALTER TABLE %s DISABLE ROW LEVEL SECURITY', current_user,
              $1::oid::regclass)
WHERE row_security_active($1::oid)
"""
_REPLICATED = "SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = $1::oid)"
_INDEXED = """
SELECT a.attname
FROM pg_index AS i
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_attribute AS d ON d.attrelid = i.indrelid AND d.attnum = i.indkey[1]
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_am AS m ON m.oid = c.relam AND m.amname = 'btree'
WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND d.attname = 'id'
  AND i.indnkeyatts >= 2 AND i.indoption[0] = 0 AND i.indoption[1] = 0
"""
_FOUND = """
SELECT n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND ($1 OR n.nspname::text = $2)
  AND EXISTS (
      SELECT FROM pg_roles AS r
      WHERE r.oid = c.relowner AND (
          r.rolname = current_user OR r.rolsuper OR r.rolname::text ~ ANY ($3::text[])
          OR r.oid = (SELECT datdba FROM pg_database WHERE datname = current_database())))
  AND (SELECT count(*) FROM pg_attribute AS a
       WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname::text = ANY ($4::text[]))
      = cardinality($4::text[])
"""
_SERVER = """
SELECT current_database(), current_user, pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'
"""


class Relation(NamedTuple):
    """A table, or something else that has the name of one."""

    oid: int
    name: TableName
    kind: str


class Server(NamedTuple):
    """The server at the end of a connection."""

    database: str
    user: str
    in_recovery: bool
    read_only: bool


class Catalogue:
    """Reads the catalogue, with no right but to connect; psycopg's errors pass through."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def server(self) -> Server:
        """Returns to what the connection leads."""
        return Server(*self._rows(_SERVER)[0])

    def find(self, name: TableName) -> Relation | None:
        """Returns what has a name, or ``None`` if nothing does that the user sees."""
        found = self._rows(_RELATION, self.connection.candidates(name))
        if not found:
            return None
        oid, schema, table, kind = found[0]
        return Relation(oid, QuotedName(schema, table), kind)

    def outboxes(self, owners: Sequence[str], *, everywhere: bool) -> list[tuple[str, str]]:
        """Returns schema and name of outboxes: of this user, of who could harm it, or of such owners."""
        listed = [f"^({'.*'.join(map(re.escape, each.split('*')))})$" for each in owners]
        here = next(iter(self.connection.schemas), None)
        return [
            (row[0], row[1]) for row in self._rows(_FOUND, everywhere, here, listed, list(TELLING_COLUMNS))
        ]

    def spelled_otherwise(self, name: TableName) -> list[str]:
        """Returns the tables that differ from a name by capitals only, as SQL writes them."""
        return [row[0] for row in self._rows(_SPELLED_OTHERWISE, name.table)]

    def columns(self, oid: int) -> dict[str, ColumnFacts]:
        """Returns a table's columns by name."""
        return {
            name: ColumnFacts(type_, default=default or "", required=required, base=base)
            for name, type_, base, required, default in self._rows(_COLUMNS, oid)
        }

    def steps(self, oid: int) -> dict[str, int]:
        """Returns by how much the numbers of a column differ that sequences give out to one session.

        Meanwhile others get those in between. It is below 0 if they do not always rise.
        """
        return {row[0]: int(row[1]) for row in self._rows(_STEPS, oid)}

    def missing_privileges(self, oid: int, wanted: Sequence[str]) -> list[str]:
        """Returns those of the wanted privileges that the user lacks on a table."""
        return [row[0] for row in self._rows(_PRIVILEGES, oid, list(wanted))]

    def missing_to_insert(self, oid: int, columns: Sequence[str]) -> list[str]:
        """Returns what the user lacks to insert these columns into a table, as a GRANT writes it."""
        return [row[0] for row in self._rows(_MISSING_TO_INSERT, oid, list(columns))]

    def keepers(self, oid: int) -> list[tuple[str, str]]:
        """Returns what may keep rows of a table from being deleted without an error, each with its cure."""
        return [(row[0], row[1]) for row in self._rows(_KEEPERS, oid)]

    def sequence_of_ids(self, oid: int) -> int | None:
        """Returns the sequence that generates all ids of a table that are given out here, in order."""
        found = self._rows(SEQUENCE_OF.format("$1"), oid)
        return found[0][0] if found else None

    def may_read_sequence(self, sequence: int) -> bool:
        """Returns whether the user may read what a sequence has given out."""
        query = "SELECT has_sequence_privilege($1::oid, 'SELECT, USAGE')"
        return bool(self._rows(query, sequence)[0][0])

    def partitioned(self, oid: int) -> bool:
        """Returns whether a table has its rows in partitions."""
        return bool(self._rows("SELECT relkind = 'p' FROM pg_class WHERE oid = $1::oid", oid)[0][0])

    def counter(self, oid: int) -> tuple[str, bool] | None:
        """Returns the sequence whose numbers are the ids of a table, and whether the user may read it."""
        found = self._rows(_COUNTERS, oid)
        return (str(found[0][0]), bool(found[0][1])) if found else None

    def last_id(self, oid: int) -> int | None:
        """Returns the greatest id that was given out; ``None`` if this cannot be known."""
        name, readable = self.counter(oid) or ("", False)
        if not readable:
            return None
        last, used = self._rows(f"SELECT last_value, is_called FROM {name}")[0]  # noqa: S608 - regclass quotes it
        return int(last) if used else int(last) - 1

    def ids_behind(self, session: Session, outbox: TableName, oid: int, origin: Origin | None) -> str:
        """Says that the sequence of a table's ids is behind them, or nothing; see ``given_ids``."""
        return ids_behind(session, str(outbox), partial(self.last_id, oid), origin)

    def last_id_cure(self, oid: int) -> str:
        """Writes the statement that moves the sequence of a table's ids behind all of them."""
        name, _ = self.counter(oid) or ("…", False)
        of_rows = f"SELECT max(id) FROM {self.name(oid)}"  # noqa: S608 - regclass quotes it
        return f"SELECT setval({PostgresIdiom().literal(name)}, ({of_rows}))"

    def name(self, oid: int) -> str:
        """Returns the name of a table or sequence, as SQL writes it."""
        return str(self._rows("SELECT $1::oid::regclass::text", oid)[0][0])

    def replicated(self, oid: int) -> bool:
        """Returns whether a subscription writes a table."""
        return bool(self._rows(_REPLICATED, oid)[0][0])

    def indexed(self, oid: int) -> frozenset[str]:
        """Returns the columns that an index of a table begins with, before ``id``."""
        return frozenset(row[0] for row in self._rows(_INDEXED, oid))

    def _rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters).fetchall()
