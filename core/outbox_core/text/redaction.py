"""Removes from texts what looks like a secret: a safeguard, as no code writes one on purpose."""

from __future__ import annotations

import re

# Lines quote what others wrote, such as keys of any length: no pattern may take a time that is its square.
_PAIR = re.compile(
    r"(?i)((?:password|passphrase|passwd|pwd|secret|token_value|sasl\.jaas\.config)['\"]?\s*+[=:]\s*+)"
    # In quotes, in braces, up to a semicolon, up to the next pair; or a word.
    r"('[^']*'|\"[^\"]*\"|\{[^}]{0,1000}\}|[^;\n]{0,1000}(?=;)"
    r"|[^\n,;&}]{0,1000}?(?=\s{1,100}[\w.]{1,100}=)|[^\s,;&}]+)"
)
_URL = re.compile(r"(\b\w++://[^\s:/@]*:)\S{1,1000}@")
# A name and a password before a host, where a host and its port are expected: a word of its own, so that each
# is tried once.
_BEFORE_HOST = re.compile(r"(?<![^\s@/,])([^\s@/,:]*+:)[^\s@/,]++@(?=[\w.\[-])")


def redact(text: str) -> str:
    """Returns ``text`` with what looks like a password replaced."""
    return redact_addresses(_PAIR.sub(r"\1***", text))


def redact_addresses(text: str) -> str:
    """Returns ``text`` with the passwords within addresses replaced; settings keep their names and values."""
    return _BEFORE_HOST.sub(r"\1***@", _URL.sub(r"\1***@", text))
