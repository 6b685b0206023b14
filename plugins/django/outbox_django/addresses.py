"""Where a database is, as ``DATABASES`` says it and as its dialect reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

from outbox_django.outboxes import outbox_of

Settings = Mapping[str, Any]


def address_of(alias: str) -> dict[str, Any]:
    """Returns the options of the dialect that say where a database is, and how to log in.

    In a test they are those of the test's own database.
    """
    written, name = connections[alias].settings_dict, outbox_of(alias).name
    address = _ADDRESSES[name](written)
    if written["PASSWORD"] and name != "sqlite":
        address["password"] = written["PASSWORD"]
    return address


def _postgres(written: Settings) -> dict[str, Any]:
    from psycopg import pq  # noqa: PLC0415 - the dialect's driver, for this database only
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - likewise

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - {"password"}
    options = {name: value for name, value in written["OPTIONS"].items() if name in known}
    keys = {"dbname": "NAME", "user": "USER", "host": "HOST", "port": "PORT"}
    options |= {name: written[key] for name, key in keys.items() if written[key]}
    return {"data_source": make_conninfo(**options)}


def _mysql(written: Settings) -> dict[str, Any]:
    options, host = written["OPTIONS"], str(written["HOST"])
    socket, host = (host, "") if host.startswith("/") else (options.get("unix_socket"), host)
    query = {
        "unix-socket": socket,
        "read-default-file": options.get("read_default_file"),
        "ssl-mode": options.get("ssl_mode"),
        **{f"ssl-{name}": value for name, value in (options.get("ssl") or {}).items()},
    }
    user = f"{quote(written['USER'], safe='')}@" if written["USER"] else ""
    place = f"[{host}]" if ":" in host else host
    port = f":{written['PORT']}" if written["PORT"] else ""
    more = urlencode({name: value for name, value in query.items() if value})
    url = f"mysql://{user}{place}{port}/{quote(written['NAME'], safe='')}"
    return {"data_source": f"{url}?{more}" if more else url}


def _sqlite(written: Settings) -> dict[str, Any]:
    return {"data_source": str(written["NAME"])}


def _oracle(written: Settings) -> dict[str, Any]:
    from django.db.backends.oracle.utils import dsn  # noqa: PLC0415 - needs the driver, for this database only

    return {"data_source": dsn(written), "user": written["USER"]}


_ADDRESSES: Mapping[str, Callable[[Settings], dict[str, Any]]] = {
    "postgres": _postgres,
    "mysql": _mysql,
    "sqlite": _sqlite,
    "oracle": _oracle,
}
