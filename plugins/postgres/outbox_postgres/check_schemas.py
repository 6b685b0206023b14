"""What ``outbox check`` reports about who else may create in the schemas that the outbox relies on."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_sdk import Finding, Level
from outbox_sdk.portable import TableName

from outbox_postgres.layout import Layout
from outbox_postgres.names import quoted
from outbox_postgres.search_path import Connection

# A grant to a role that no other login role is a member of permits nobody anything.
_CREATORS = """
SELECT n.nspname, g.rolname
FROM pg_namespace AS n
CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS acl
LEFT JOIN pg_roles AS g ON g.oid = acl.grantee
WHERE n.nspname::text = ANY ($1::text[]) AND acl.privilege_type = 'CREATE' AND acl.grantee <> n.nspowner
  AND (acl.grantee = 0 OR EXISTS (
      SELECT FROM pg_roles AS r
      WHERE r.rolcanlogin AND NOT r.rolsuper AND r.rolname <> current_user
        AND pg_has_role(r.oid, acl.grantee, 'MEMBER') AND NOT pg_has_role(r.oid, n.nspowner, 'MEMBER')))
ORDER BY n.nspname, g.rolname
"""


def check_schemas(connection: Connection, layout: Layout, wanted: TableName) -> Iterator[Finding]:
    """Looks for roles, other than owners and superusers, that could put a table in the place of ours.

    Args:
        connection: The connection.
        layout: The outbox as found.
        wanted: The outbox's name as configured: without a schema, what is in an earlier one of the search
            path would be taken for it.
    """
    subject = "schemas"
    schemas = [table.schema for table in layout.tables]
    if not wanted.schema:
        schemas += connection.schemas[: connection.schemas.index(layout.outbox.schema)]
    found = connection.execute(_CREATORS, (schemas,)).fetchall()
    for schema, role in found:
        who, grantee = (f"role '{role}'", quoted(role)) if role else ("every role", "PUBLIC")
        # As one would write it, which matters for the schema that all databases have.
        name = schema if schema == "public" else quoted(schema)
        yield Finding(
            Level.WARNING,
            subject,
            f"{who} may create in schema {schema}: a table in the place of one of ours has triggers, which "
            "run with the harvester's rights",
            f"REVOKE CREATE ON SCHEMA {name} FROM {grantee}",
        )
    if not found:
        yield Finding(Level.OK, subject, "only their owners may create in them")
