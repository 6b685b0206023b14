"""A whole dialect over any DB-API driver: the transactional fallback, written once.

Every change is one transaction that first locks its lane's fence row, and then does what the contract says in
statements that all databases know. What a plugin adds is an :class:`Idiom`, how its database writes what SQL
leaves open, and a subclass of :class:`PortableDialect`, how to connect to it.

Nothing here imports a database driver.
"""

from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_api.portable.dialect import CAPABILITIES, SERVER_CAPABILITIES, PortableDialect
from outbox_api.portable.idiom import ErrorKind, Idiom
from outbox_api.portable.intake import PortableIntake
from outbox_api.portable.options import PortableOptions
from outbox_api.portable.rows import portable_insert
from outbox_api.portable.session import Session
from outbox_api.portable.table import PortableTable
from outbox_api.portable.table_idiom import TableName

__all__ = [
    "CAPABILITIES",
    "SERVER_CAPABILITIES",
    "ErrorKind",
    "Idiom",
    "PortableDeadLetters",
    "PortableDialect",
    "PortableIntake",
    "PortableOptions",
    "PortableTable",
    "Session",
    "TableName",
    "portable_insert",
]
