"""Finds the key that somebody meant who wrote another one."""

from difflib import get_close_matches


def nearest_key(key: str, valid: list[str]) -> str | None:
    """Returns the valid key most similar to ``key``, without regard to case, ``_`` and ``-``; or none."""
    similar = {normalized(name): name for name in valid}
    close = get_close_matches(normalized(key), similar, n=1)
    return similar[close[0]] if close else None


def normalized(key: str) -> str:
    """Returns a key as those are compared."""
    return key.replace("_", "").replace("-", "").lower()
