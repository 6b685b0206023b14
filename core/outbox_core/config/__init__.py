"""Reads a configuration, from YAML or from what YAML would hold, into :mod:`outbox_core.settings`."""

from outbox_core.config.reader import configure, load, locate, parse

__all__ = ["configure", "load", "locate", "parse"]
