"""The options of ``format("outbox")``, as a source and as a sink; without PySpark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path

from outbox_api import ConfigError, Seam, find
from outbox_core.config import configure, load
from outbox_core.config.decode import camel
from outbox_core.settings import HarvestSettings
from outbox_core.text.spelling import nearest_key
from pyspark_outbox_kafka.sentences import not_installed

_SHARED = ("dataSource", "dialect", "name", "outboxTable", "password")
"""The keys of ``harvest:`` in a file that are options, too."""
_FILE = ("config", "outbox")
_STREAMS = ("failOnDataLoss", "maxBytesPerTrigger", "maxRecordsPerTrigger", "startingOffsets")
_SOURCES = (*_SHARED, *_FILE, *_STREAMS, "of", "partitions", "values")
_SINKS = (*_SHARED, *_FILE, "inboxTable", "topic")
_SPARKS = frozenset({"checkpointlocation", "path", "queryname"})
"""What Spark hands over of its own to a sink."""
_DIALECT = "dialect."
_HOW = "Spark"
_TRUTHS = {"true": True, "false": False}


class Of(StrEnum):
    """What of an outbox is read."""

    WAITING = "waiting"
    DEAD_LETTERS = "dead-letters"
    KEPT = "kept"


@dataclass(frozen=True)
class SourceOptions:
    """What the options say.

    Attributes:
        settings: The outbox, as a harvester would be told.
        max_rows: How many rows a batch may have.
        max_bytes: How many bytes.
        partitions: Into how many partitions a batch is divided; ``None`` for as many as its size calls for.
        values: Whether values are read.
        of: What is read.
        starting: What a new stream begins with.
        fail_on_data_loss: Whether a stream ends if kept records that it was to read are gone.
    """

    settings: HarvestSettings
    max_rows: int = 50_000
    max_bytes: int = 32 << 20
    partitions: int | None = None
    values: bool = True
    of: Of = Of.WAITING
    starting: Of = Of.WAITING
    fail_on_data_loss: bool = True

    def __reduce__(self) -> tuple[Callable[[bytes], SourceOptions], tuple[bytes]]:
        """Packs the options, so that an executor without the dialect can say so."""
        return _unpacked, (pickle.dumps([getattr(self, field.name) for field in fields(self)]),)


@dataclass(frozen=True)
class StashOptions:
    """What the options of the sink say.

    Attributes:
        settings: The outbox, as a harvester would be told.
        topic: The topic of all rows; ``None`` if rows have one each.
        inbox_table: The table in which batches are noted.
    """

    settings: HarvestSettings
    topic: str | None = None
    inbox_table: str = "outbox_inbox"


def _unpacked(packed: bytes) -> SourceOptions:
    """Returns options that the driver has packed."""
    try:
        return SourceOptions(*pickle.loads(packed))  # noqa: S301 - within what Spark itself pickles
    except ImportError as error:
        raise not_installed(error) from None


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Reads options, whose names are case-insensitive; connects to nothing."""
    options = {_known(name, given, _SOURCES, "source"): value for name, value in given.items()}
    settings = _settings(options)
    settings = replace(settings, name=options.get("name", settings.name))
    if settings.affinity.driver != "none":
        raise ConfigError(
            f"the Spark source reads all rows of an outbox, and the affinity '{settings.affinity.driver}' "
            "gives each cluster some; leave the affinity out, or harvest this outbox"
        )
    if settings.transforms:
        raise ConfigError(
            f"the Spark source applies no transforms, and {options['config']} has 'transform:'; transform "
            "the DataFrame instead, and name the outbox in options or in a file without transforms"
        )
    return SourceOptions(
        settings,
        _count(options, "maxRecordsPerTrigger") or SourceOptions.max_rows,
        _count(options, "maxBytesPerTrigger") or SourceOptions.max_bytes,
        _count(options, "partitions"),
        _truth(options, "values"),
        Of(_choice(options, "of", [*Of])),
        Of(_choice(options, "startingOffsets", [Of.WAITING, Of.KEPT])),
        _truth(options, "failOnDataLoss"),
    )


def read_stash_options(given: Mapping[str, str]) -> StashOptions:
    """Reads the options of the sink, whose names are case-insensitive; connects to nothing."""
    options = {
        _known(name, given, _SINKS, "sink"): value
        for name, value in given.items()
        if name.lower() not in _SPARKS
    }
    inbox = options.get("inboxTable", StashOptions.inbox_table)
    return StashOptions(_settings(options), options.get("topic"), inbox)


def _known(name: str, given: Mapping[str, str], names: Collection[str], what: str) -> str:
    """Returns an option's name as the documentation writes it."""
    valid = {each.lower(): each for each in names}
    if name.lower() in valid:
        return valid[name.lower()]
    if name.lower().startswith(_DIALECT):
        return _DIALECT + _of_dialect(name[len(_DIALECT) :], given)
    nearest = nearest_key(name, list(valid.values()))
    hint = f"did you mean '{nearest}'?" if nearest else f"there are {', '.join(sorted(valid.values()))}"
    raise ConfigError(f"the Spark {what} has no option '{name}'; {hint}")


def _of_dialect(name: str, given: Mapping[str, str]) -> str:
    driver = next((value for key, value in given.items() if key.lower() == "dialect"), "postgres")
    names = {
        camel(field.name).lower(): camel(field.name) for field in fields(find(Seam.DIALECT, driver).options)
    }
    return names.get(name.lower(), name)  # core says of others that there are none


def _settings(options: Mapping[str, str]) -> HarvestSettings:
    shared = {key: value for key, value in options.items() if key in _SHARED or key.startswith(_DIALECT)}
    if "config" not in options:
        if "outbox" in options:
            raise ConfigError(
                "the option 'outbox' chooses among the outboxes of a file; name that as 'config'"
            )
        return configure({"harvest": _harvest(shared)}, source=_HOW).harvest
    if shared.keys() - {"name"}:
        raise ConfigError(
            f"the option 'config' names a file, and '{min(shared.keys() - {'name'})}' is one of its "
            "settings; give one or the other"
        )
    settings = load(Path(options["config"]))
    label = options.get("outbox")
    if label is None and not settings.several:
        return settings.harvest
    for outbox in settings.outboxes:
        if outbox.label == label:
            return outbox
    labels = ", ".join(outbox.label for outbox in settings.outboxes) or "no label"
    raise ConfigError(
        f"{options['config']} has no outbox '{label}'; there are {labels}"
        if label
        else f"{options['config']} names several outboxes ({labels}); choose one by the option 'outbox'"
    )


def _harvest(shared: Mapping[str, str]) -> dict[str, object]:
    """Returns what ``harvest:`` would contain; an elector and an engine that nothing is to be known of."""
    own = {key.removeprefix(_DIALECT): value for key, value in shared.items() if key.startswith(_DIALECT)}
    plain = {key: value for key, value in shared.items() if not key.startswith(_DIALECT)}
    dialect = {"driver": plain.pop("dialect", "postgres"), **own}
    return {**plain, "dialect": dialect, "elector": "static", "engine": "inline"}


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"the option '{name}' is {text!r}; it is a number, at least 1")
    return int(text)


def _truth(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "true")
    if text.lower() not in _TRUTHS:
        raise ConfigError(f"the option '{name}' is {text!r}; it is true or false")
    return _TRUTHS[text.lower()]


def _choice(options: Mapping[str, str], name: str, choices: Sequence[Of]) -> str:
    text = options.get(name, choices[0])
    if text not in choices:
        raise ConfigError(f"the option '{name}' is {text!r}; it is {' or '.join(choices)}")
    return text
