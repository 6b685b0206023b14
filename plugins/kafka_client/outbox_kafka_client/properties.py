"""Lists the properties that the installed librdkafka knows, for the hint in an error.

The Python client has no call for it, so this module calls librdkafka's ``rd_kafka_conf_properties_show``
through ctypes. Only hints depend on it: where it does not work there are none.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from difflib import get_close_matches

_NAME = re.compile(rb"^([a-z][a-z0-9_.]*) *\|", re.MULTILINE)


def known_properties() -> list[str]:
    """Returns the property names in librdkafka's order; empty where the library cannot be asked."""
    from confluent_kafka import cimpl  # noqa: PLC0415 - the client is imported late

    try:
        client, libc = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
        show, fdopen, fclose = client.rd_kafka_conf_properties_show, libc.fdopen, libc.fclose
    except (AttributeError, OSError, TypeError):  # no such symbol, or a platform without a C library to share
        return []
    show.argtypes, show.restype = [ctypes.c_void_p], None
    fdopen.argtypes, fdopen.restype = [ctypes.c_int, ctypes.c_char_p], ctypes.c_void_p
    fclose.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as file:
        stream = fdopen(os.dup(file.fileno()), b"w")
        if not stream:
            return []
        show(stream)
        fclose(stream)
        file.seek(0)
        return [name.decode() for name in _NAME.findall(file.read())]


def nearest(name: str) -> str | None:
    """Returns the known property whose name is most similar to ``name``, if any is similar."""
    matches = get_close_matches(name, known_properties(), n=1)
    return matches[0] if matches else None
