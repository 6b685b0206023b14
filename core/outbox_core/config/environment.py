"""Replaces environment variables in values: ``${NAME}`` and ``${NAME:-default}``; ``$${`` stays ``${``."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Returns ``text`` with its references replaced, once: references in values of variables stay.

    Args:
        text: The value as written.
        variables: The environment. A default replaces a variable that is unset or empty.

    Raises:
        ValueError: A variable is unset and has no default, or a reference is malformed; the message
            names the variable, never a value.
    """

    def replace(match: re.Match[str]) -> str:
        if match["inside"] is None:
            return "${"
        inside = _INSIDE.fullmatch(match["inside"]) if match["end"] else None
        if inside is None:
            raise ValueError("expected ${NAME} or ${NAME:-default}; write $${ for a plain ${")
        name, default = inside["name"], inside["default"]
        value = variables.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ValueError(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return value

    return _REFERENCE.sub(replace, text)
