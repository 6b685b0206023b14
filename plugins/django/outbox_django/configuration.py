"""The project's settings as a configuration of outbox, which stays in this process's memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outbox_core.config import HarvestSettings, Settings, configure
from outbox_core.config import load as load_file
from outbox_core.config.decode import camel

from outbox_django.addresses import address_of
from outbox_django.outboxes import aliases, outbox_of, written


def load(file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Returns the outboxes of ``DATABASES``, with what ``OUTBOX['CONFIG']`` says of broker, engine and so on.

    Args:
        file: A file to read instead of ``CONFIG``.
        overrides: Dotted key → value to use instead.

    Raises:
        ConfigError: The settings cannot be used.
        PluginError: A driver is missing.
    """
    given = {**_databases(), **(overrides or {})}
    config = file or written("CONFIG")
    if isinstance(config, Mapping):
        return configure(config, given, source="OUTBOX['CONFIG']")
    return load_file(config, given)


def settings_of(alias: str) -> HarvestSettings:
    """Returns the settings of the outbox of one database; raises as :func:`load`."""
    outboxes = load().outboxes
    return next(each for each in outboxes if each.label in ("", alias))


def _databases() -> dict[str, str]:
    given: dict[str, str] = {}
    named = aliases()
    for alias in named:
        outbox, section = outbox_of(alias), "harvest" if len(named) == 1 else f"outboxes.{alias}"
        options = {"driver": outbox.name, "value_type": outbox.options.value_type, **address_of(alias)}
        given[f"{section}.outboxTable"] = outbox.options.table
        given |= {f"{section}.dialect.{camel(name)}": value for name, value in options.items()}
    return given
