"""Names of tables as Oracle reads and writes them."""

from __future__ import annotations

import re

from outbox_sdk.portable import TableName

_QUOTED = re.compile(r'"(?:[^"]|"")+"')


def table_name(text: str) -> TableName:
    """Reads ``table`` or ``schema.table``: unquoted parts fold to upper case, quoted ones keep their quotes.

    Raises:
        ConfigError: It is neither.
    """
    TableName.parse(text)  # complains
    parts, at = [], 0
    text = text.strip()
    for quoted in _QUOTED.finditer(text):
        parts += [part.upper() for part in text[at : quoted.start()].split(".") if part]
        parts.append(quoted[0])
        at = quoted.end()
    parts += [part.upper() for part in text[at:].split(".") if part]
    return TableName(parts[0] if len(parts) > 1 else "", parts[-1])


def quoted(name: str) -> str:
    """Writes a name so that Oracle takes it as it is; one that is not quoted yet folds to upper case."""
    return name if _QUOTED.fullmatch(name) else '"' + name.upper().replace('"', '""') + '"'


def plain(name: str) -> str:
    """Returns a name as the data dictionary has it."""
    return quoted(name)[1:-1].replace('""', '"')


def canonical(name: str) -> str:
    """Returns the one way to write a name: without quotes where Oracle folds it to itself."""
    bare = plain(name)
    return bare if bare == bare.upper() and '"' not in bare else quoted(name)
