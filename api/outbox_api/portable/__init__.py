"""A whole dialect over any DB-API driver: the transactional fallback, written once.

Every change is one transaction that first locks its lane's fence row, and then does what the contract says in
statements that all databases know. What a plugin adds is an :class:`Idiom`, how its database writes what SQL
leaves open, and a subclass of :class:`PortableDialect`, how to connect to it.

Nothing here imports a database driver, and a module is imported when one of its names is first asked for.
"""

from typing import TYPE_CHECKING

from outbox_api.base.lazy_names import lazily

if TYPE_CHECKING:
    from outbox_api.portable.database import CAPABILITIES as CAPABILITIES
    from outbox_api.portable.database import SERVER_CAPABILITIES as SERVER_CAPABILITIES
    from outbox_api.portable.dead_letters import PortableDeadLetters as PortableDeadLetters
    from outbox_api.portable.dialect import PortableDialect as PortableDialect
    from outbox_api.portable.idiom import ErrorKind as ErrorKind
    from outbox_api.portable.idiom import Idiom as Idiom
    from outbox_api.portable.intake import PortableIntake as PortableIntake
    from outbox_api.portable.options import PortableOptions as PortableOptions
    from outbox_api.portable.rows import portable_insert as portable_insert
    from outbox_api.portable.session import Session as Session
    from outbox_api.portable.table import PortableTable as PortableTable
    from outbox_api.portable.table_idiom import TableName as TableName
else:
    __getattr__ = lazily(
        __name__,
        {
            "outbox_api.portable.dead_letters": "PortableDeadLetters",
            "outbox_api.portable.database": "CAPABILITIES SERVER_CAPABILITIES",
            "outbox_api.portable.dialect": "PortableDialect",
            "outbox_api.portable.idiom": "ErrorKind Idiom",
            "outbox_api.portable.intake": "PortableIntake",
            "outbox_api.portable.options": "PortableOptions",
            "outbox_api.portable.rows": "portable_insert",
            "outbox_api.portable.session": "Session",
            "outbox_api.portable.table": "PortableTable",
            "outbox_api.portable.table_idiom": "TableName",
        },
    )
