"""A role that fills a schema with functions, operators, tables and types which our statements could take."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import outbox_postgres
import psycopg
from outbox_api import portable

TYPES = ("text", "character varying", "integer", "bigint", "oid", "timestamp with time zone")
"""The types that overloads combine: those of our arguments, and those that literals have."""

_SHADOWED = ("pg_class", "pg_namespace", "pg_type", "pg_locks", "pg_settings", "pg_roles")
_SIGNATURES = """
SELECT DISTINCT p.proname, pg_catalog.array(
    SELECT pg_catalog.format_type(t, NULL) FROM pg_catalog.unnest(p.proargtypes) AS t)
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname::text = ANY (%s::text[])
  AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_type AS t WHERE t.oid = ANY (p.proargtypes) AND t.typtype = 'p'
      AND t.typname::text <> ALL ('{anyelement,anyarray,anynonarray}'::text[]))
""".replace("pg_catalog.array(", "array(")
_OPERATORS = """
SELECT DISTINCT oprname, format_type(oprleft, NULL), format_type(oprright, NULL),
       format_type(oprresult, NULL)
FROM pg_operator
WHERE oprname::text = ANY (%s::text[]) AND oprleft <> 0 AND oprright <> 0 AND NOT EXISTS (
    SELECT FROM pg_type AS t WHERE t.oid IN (oprleft, oprright) AND t.typtype = 'p')
"""
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_OPERATORS_USED = (*_COMPARISONS, "+", "-", "*", "/", "%", "#", "&", "<<", ">>", "||")


class HostileSchema:
    """A schema in which a role of no other rights has defined what it could.

    Whatever of it runs says so, even if the transaction is rolled back, and fails.

    Args:
        admin: A superuser's connection; its search path is the catalogue from now on.
        schema: The schema, in which the role may create.
        role: The role.

    Attributes:
        sequence: Counts what has run.
    """

    def __init__(self, admin: psycopg.Connection[Any], schema: str, role: str) -> None:
        self._admin = admin
        self._schema = schema
        self.sequence = f"{schema}.ran"
        admin.execute("SET search_path TO pg_catalog, pg_temp")
        statements = [*self._attack(), *self._functions(), *self._operators(), *self._relations()]
        with admin.transaction():
            admin.execute(f"SET LOCAL ROLE {role}; SET LOCAL check_function_bodies = off")
            admin.execute(";\n".join(statements).encode())

    def ran(self) -> bool:
        """Returns whether anything of it has run."""
        row = self._admin.execute(f"SELECT is_called FROM {self.sequence}").fetchone()
        return bool(row and row[0])

    def _attack(self) -> Iterator[str]:
        yield f"CREATE SEQUENCE {self.sequence}"
        yield f"GRANT ALL ON SEQUENCE {self.sequence} TO PUBLIC"
        yield self._function("attack", ["text"], "bool", "$1")

    def _functions(self) -> Iterable[str]:
        source = "".join(
            path.read_text(encoding="utf-8")
            for module in (outbox_postgres, portable)
            for path in Path(str(module.__file__)).parent.glob("*.py")
        )
        used = sorted(set(re.findall(r"\b([a-z_0-9]+)\(", source)))
        own = [(name, tuple(types)) for name, types in self._admin.execute(_SIGNATURES, (used,))]
        sizes = {(name, len(types)) for name, types in own}
        combined = [
            (name, types)
            for name, size in sizes
            if size < 3
            for types in itertools.product(TYPES, repeat=size)
        ]
        assert len(sizes) > 50, "the statements call more functions than were found"
        for name, types in dict.fromkeys([*own, *combined]):
            if (name, types) != ("attack", ("text",)):
                yield self._function(name, types, "bool", f"'{name}'")

    def _operators(self) -> Iterator[str]:
        own = {
            (name, left, right): result
            for name, left, right, result in self._admin.execute(_OPERATORS, (list(_OPERATORS_USED),))
        }
        combined = {
            (name, *types): "bool" if name in _COMPARISONS else "text"
            for name, *types in itertools.product(_OPERATORS_USED, TYPES, TYPES)
        }
        for number, ((name, left, right), result) in enumerate({**combined, **own}.items()):
            function = f"operator_{number}"
            yield self._function(function, [left, right], result, f"'{name}'")
            yield (
                f"CREATE OPERATOR {self._schema}.{name} (LEFTARG = {left}, RIGHTARG = {right}, "
                f"FUNCTION = {self._schema}.{function})"
            )

    def _relations(self) -> Iterator[str]:
        for name in _SHADOWED:
            yield (
                f"CREATE VIEW {self._schema}.{name} AS SELECT * FROM pg_catalog.{name} "
                f"WHERE {self._schema}.attack('{name}')"
            )
            yield f"GRANT SELECT ON {self._schema}.{name} TO PUBLIC"
        for name in ("text", "uuid", "oid"):
            yield (
                f"CREATE DOMAIN {self._schema}.{name} AS pg_catalog.{name} "
                f"CHECK ({self._schema}.attack('{name}'))"
            )

    def _function(self, name: str, types: Iterable[str], result: str, what: str) -> str:
        return (
            f"CREATE FUNCTION {self._schema}.{name} ({', '.join(types)}) RETURNS {result} "
            f"LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.nextval('{self.sequence}'); "
            f"RAISE EXCEPTION 'attacked by way of %', {what}; END $$"
        )
