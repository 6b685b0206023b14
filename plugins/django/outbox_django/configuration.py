"""The project's settings as a configuration of outbox, which stays in this process's memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from outbox_api import ConfigError
from outbox_core.config import configure
from outbox_core.config import load as load_file
from outbox_core.config.decode import camel
from outbox_core.settings import HarvestSettings, Settings

from outbox_django.addresses import address_of
from outbox_django.outboxes import aliases, outbox_of, written


def load(file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Returns the outboxes of ``DATABASES``, with what ``file`` or ``OUTBOX['CONFIG']`` says of the rest."""
    config = file or written("CONFIG")
    given = {**_databases(_data(config)), **(overrides or {})}
    if isinstance(config, Mapping):
        return configure(config, given, source="OUTBOX['CONFIG']")
    return load_file(config, given)


def settings_of(alias: str) -> HarvestSettings:
    """Returns the settings of the outbox of one database; raises as :func:`load`."""
    for each in load().outboxes:
        if each.label in {"", alias}:
            return each
    raise ConfigError(f"OUTBOX['CONFIG'] has several outboxes for the database '{alias}', by a pattern")


def _data(config: Any) -> Mapping[str, Any]:
    """Returns what a configuration says, as data; nothing if it cannot be read: who reads it says why."""
    found = config
    if not isinstance(config, Mapping):
        try:
            found = yaml.safe_load(Path(config).read_text("utf-8-sig"))
        except (OSError, ValueError, yaml.YAMLError):
            found = None
    return found if isinstance(found, Mapping) else {}


def _databases(config: Mapping[str, Any]) -> dict[str, str]:
    given: dict[str, str] = {}
    named, several = aliases(), config.get("outboxes") or {}
    if unknown := sorted(set(several).difference(named)):
        raise ConfigError(f"outboxes.{unknown[0]}: a label is the alias of a database: {', '.join(named)}")
    for alias in named:
        outbox, section = outbox_of(alias), f"outboxes.{alias}" if several or len(named) > 1 else "harvest"
        options = {"driver": outbox.name, "value_type": outbox.options.value_type, **address_of(alias)}
        said = (several.get(alias) if several else config.get("harvest")) or {}
        given[f"{section}.outboxTable"] = _table(said, outbox.options.table, section)
        given |= {f"{section}.dialect.{camel(name)}": value for name, value in options.items()}
    return given


def _table(said: Any, stashed: str, section: str) -> str:
    """Returns the table to harvest: that of ``OUTBOX``, with the schemas that a configuration may add."""
    table = str((said.get("outboxTable") if isinstance(said, Mapping) else None) or stashed)
    if table.rpartition(".")[2] != stashed:
        raise ConfigError(
            f"{section}.outboxTable is '{table}', and records are stashed into OUTBOX['TABLE'], '{stashed}': "
            f"leave it out, or add schemas only, such as 'tenant_*.{stashed}'"
        )
    return table
