"""Clients of the HTTP server: what they may do, and how they said who they are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto


class Role(IntEnum):
    """What a client may do; a greater role includes the lesser ones."""

    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Also changes something."""


class Means(Enum):
    """How a client said who it is."""

    NONE = auto()
    """Not at all: everybody may read here."""
    BEARER = auto()
    """By a token in the header ``Authorization``, which no browser adds by itself."""
    SESSION = auto()
    """By the cookie of a session, which ``POST /logout`` ends."""
    PROXY = auto()
    """The proxy named the user."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks.

    Attributes:
        name: The operator's name, or that of the proxy's user; the journal notes it. ``viewer`` for a token
            without a name; empty where everybody may read.
        role: What it may do.
        means: How it said who it is.
    """

    name: str
    role: Role
    means: Means
