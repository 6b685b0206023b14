"""Replaces references in values: ``${NAME}``, ``${NAME:-default}``, ``${file:PATH}``; ``$${`` is a ``${``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outbox_api.support.file_text import FileText

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_FILE = "file:"


@dataclass(frozen=True)
class Environment:
    """What references in a configuration refer to."""

    variables: Mapping[str, str] = field(repr=False)
    """The environment variables; not in the repr, as they may be secrets."""
    folder: Path = field(default_factory=Path)  # the folder that relative paths start from

    def substitute(self, text: str) -> str | FileText:
        """Returns ``text`` with its references replaced, once: references in values of variables stay.

        A default replaces a variable that is unset or empty. Files are not read here: a text that refers to
        one becomes a :class:`FileText` with absolute paths.

        Raises:
            ValueError: A variable is unset and has no default, or a reference is malformed; the message
                names the variable, never a value.
        """
        parts: list[str | Path] = []
        piece, end = "", 0
        for match in _REFERENCE.finditer(text):
            replacement = self._replacement(match)
            piece += text[end : match.start()]
            end = match.end()
            if isinstance(replacement, str):
                piece += replacement
            else:
                parts += [piece, replacement]
                piece = ""
        piece += text[end:]
        return FileText(tuple(part for part in (*parts, piece) if part != "")) if parts else piece

    def _replacement(self, match: re.Match[str]) -> str | Path:
        if match["inside"] is None:
            return "${"
        if match["end"] and match["inside"].startswith(_FILE):
            path = match["inside"].removeprefix(_FILE)
            if not path.strip():
                raise ValueError("${file:} names no file; write ${file:PATH}")
            return self.folder.absolute() / path
        inside = _INSIDE.fullmatch(match["inside"]) if match["end"] else None
        if inside is None:
            raise ValueError("expected ${NAME}, ${NAME:-default} or ${file:PATH}; write $${ for a plain ${")
        name, default = inside["name"], inside["default"]
        value = self.variables.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ValueError(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return value
