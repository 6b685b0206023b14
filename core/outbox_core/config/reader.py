"""Reads a configuration: goharvest's YAML keys, and our own."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outbox_sdk.errors import ConfigError
from outbox_sdk.file_text import FileText
from outbox_sdk.ownership import other_writer
from outbox_sdk.registry import Seam

from outbox_core.config.decode import Raw, decode
from outbox_core.config.document import Node, Scalar, Section, read, tree, with_value
from outbox_core.config.election import own_topics
from outbox_core.config.environment import Environment
from outbox_core.config.http import HttpSettings
from outbox_core.config.identity import instance_name
from outbox_core.config.logs import LoggingSettings
from outbox_core.config.outboxes import pattern_of, refuse_twins, sections_of
from outbox_core.config.problems import Place, Problems, join
from outbox_core.config.seams import DEFAULT_DRIVERS, KafkaSettings, Shared, choose, driver_of
from outbox_core.config.settings import (
    Delivery,
    Failures,
    HarvestSettings,
    Limits,
    Settings,
    Template,
)

FILE_VARIABLE = "OUTBOX_FILE"
DEFAULT_FILE = Path("outbox.yaml")
DEFAULT_BROKERS = {"bootstrap.servers": "localhost:9092"}
DEFAULT_DATA_SOURCE = "host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable"
"""goharvest's local Postgres; used only with the default dialect."""


@dataclass(frozen=True)
class HarvestKeys:
    """The keys below ``harvest:``, as users write them."""

    base_kafka_config: KafkaSettings = field(default_factory=dict, repr=False)
    producer_kafka_config: KafkaSettings = field(default_factory=dict, repr=False)
    leader_topic: str | None = None
    leader_group_id: str | None = None
    data_source: str | FileText | None = field(default=None, repr=False)
    password: str | FileText | None = field(default=None, repr=False)
    outbox_table: str = "outbox"
    name: str | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    limits: Limits = field(default_factory=Limits)
    failures: Failures = field(default_factory=Failures)
    topics: tuple[str, ...] = ("*",)
    dialect: Raw = None
    elector: Raw = None
    affinity: Raw = None
    publisher: Raw = None
    engine: Raw = None

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ConfigError("topics names no topic; leave it out to permit all, or list patterns")


@dataclass(frozen=True)
class FileKeys:
    """The keys at the top of a file."""

    harvest: Raw = None
    outboxes: Raw = None
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    http: HttpSettings = field(default_factory=HttpSettings)


def locate(path: Path | None, variables: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the file to read: ``path``, else ``$OUTBOX_FILE``, else ``outbox.yaml`` here, else none.

    Raises:
        ConfigError: Somebody else may have written the one that nobody has named.
    """
    if path is not None:
        return path
    if named := variables.get(FILE_VARIABLE):
        return Path(named)
    if not DEFAULT_FILE.is_file():
        return None
    if why := other_writer(DEFAULT_FILE):
        raise ConfigError(
            f"{DEFAULT_FILE.absolute()} {why}, and is not read unless you name it: -f {DEFAULT_FILE}"
        )
    return DEFAULT_FILE


def load(
    path: Path | str | None = None,
    overrides: Mapping[str, str] | None = None,
    variables: Mapping[str, str] = os.environ,
) -> Settings:
    """Reads the settings from a file, or takes the defaults where there is none.

    Args:
        path: The file; ``None`` for ``$OUTBOX_FILE`` or ``outbox.yaml`` in the working directory, which
            only this user and root may be able to write.
        overrides: Dotted key → value to use instead of the file's (``harvest.engine.driver`` → ``inline``).
        variables: The environment.

    Raises:
        ConfigError: The file cannot be read or used; the message lists everything that is wrong.
        PluginError: A driver is missing.
    """
    file = locate(None if path is None else Path(path), variables)
    if file is None:
        return configure({}, overrides, variables)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: there is no such file; name one with -f, or in ${FILE_VARIABLE}"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    return parse(text, str(file), variables, overrides, file.parent)


def parse(
    text: str,
    source: str = "configuration",
    variables: Mapping[str, str] = os.environ,
    overrides: Mapping[str, str] | None = None,
    folder: Path = Path(),
) -> Settings:
    """Reads the settings from YAML text.

    Args:
        text: The YAML.
        source: The name of the text in messages.
        variables: The environment.
        overrides: Dotted key → value to use instead.
        folder: The folder that relative paths in references to files start from.

    Raises:
        ConfigError: See :func:`load`.
        PluginError: See :func:`load`.
    """
    problems = Problems()
    root = read(text, source, Environment(variables, folder), problems)
    if root is None:
        raise ConfigError(f"{source}: is empty; it needs at least 'harvest: {{}}'")
    return _settings(root, overrides or {}, problems)


def configure(
    data: Mapping[str, Any],
    overrides: Mapping[str, str] | None = None,
    variables: Mapping[str, str] = os.environ,
    source: str = "configuration",
) -> Settings:
    """Creates the settings from plain data with the keys of a file: ``{"harvest": {"dataSource": …}}``.

    Args:
        data: What a file would contain.
        overrides: Dotted key → value to use instead.
        variables: The environment.
        source: The name of the data in messages.

    Raises:
        ConfigError: See :func:`load`.
        PluginError: See :func:`load`.
    """
    problems = Problems()
    return _settings(tree(dict(data), source, Environment(variables), problems), overrides or {}, problems)


def _settings(root: Node, overrides: Mapping[str, str], problems: Problems) -> Settings:
    if not isinstance(root, Section):
        raise ConfigError(f"{root.place}: expected a mapping with 'harvest:' and 'logging:' at the top")
    root = _overridden(root, overrides)
    top = decode(FileKeys, root, "", problems)
    # The rest is read even if this is wrong, so that one message lists everything.
    nodes = {key: node for key, (_, node) in root.entries.items()}
    common = _section(nodes.get("harvest"), "harvest", root.place, problems)
    if "outboxes" in nodes:
        made = _several(nodes["outboxes"], common, overrides, problems)
    else:
        made = [_harvest(common, "harvest", problems)]
    problems.raise_any()
    if top is None:  # pragma: no cover - then a problem was raised above
        raise ConfigError(f"{root.place}: cannot be used")
    outboxes = [each for each in made if isinstance(each, HarvestSettings)]
    templates = [each for each in made if isinstance(each, Template)]
    everyone = [*outboxes, *(template.probe for template in templates)]
    own = frozenset().union(*(own_topics(each.elector, each.publisher) for each in everyone))
    names = top.logging.key_names
    return Settings(
        outboxes=tuple(replace(each, key_names=names, own_topics=own) for each in outboxes),
        templates=tuple(each.with_common(names, own) for each in templates),
        several="outboxes" in nodes,
        logging=top.logging,
        http=top.http,
    )


def _overridden(section: Section, overrides: Mapping[str, str]) -> Section:
    """Puts values in the place of what is written; the options of another driver go with it."""
    for key, value in overrides.items():
        path, present = key.split("."), section
        for step in path[:-1]:
            node = present.entries[step][1] if step in present.entries else None
            present = node if isinstance(node, Section) else Section(section.place)
        if path[-1] == "driver" and present.entries and driver_of(Seam(path[-2]), present) != value:
            path = path[:-1]
        section = with_value(section, path, Scalar(Place("command line"), value))
    return section


def _several(
    node: Node, common: Section, overrides: Mapping[str, str], problems: Problems
) -> list[HarvestSettings | Template | None]:
    if "name" not in common.entries:  # made once, so that all have the same
        common = with_value(common, ("name",), Scalar(common.place, instance_name()))
    sections = sections_of(node, common, problems)
    made = []
    for label, section in sections.items():
        found = Problems()
        made.append(_labelled(label, section, overrides, found))
        problems.add_others(found)  # what is wrong with the common part is told once
    refuse_twins([each for each in made if isinstance(each, HarvestSettings)], sections, problems)
    return made


def _section(node: Node | None, path: str, place: Place, problems: Problems) -> Section:
    if node is None or (isinstance(node, Scalar) and node.text is None):
        return Section(place)
    if isinstance(node, Section):
        return node
    problems.add(node.place, path, "expected a mapping of keys to values")
    return Section(place)


def _labelled(
    label: str, section: Section, overrides: Mapping[str, str], problems: Problems
) -> HarvestSettings | Template | None:
    """Makes the settings of one of several outboxes, or of a template of outboxes."""
    own = {
        key.removeprefix("harvest."): value for key, value in overrides.items() if key.startswith("harvest.")
    }
    section = _overridden(section, own)
    path, pattern = join("outboxes", label), pattern_of(section)
    if pattern is None:
        made = _harvest(section, path, problems)
        return made and replace(made, label=label)

    def settings_for(table: str) -> HarvestSettings:
        found = Problems()
        named = with_value(section, ("outboxTable",), Scalar(section.place, table))
        settings = _harvest(named, path, found)
        found.raise_any()
        assert settings is not None  # noqa: S101 - there is no problem
        return replace(settings, label=f"{label}/{table}")

    probe = with_value(section, ("outboxTable",), Scalar(section.place, pattern.replace("*", "x")))
    return Template(label, pattern, settings_for) if _harvest(probe, path, problems) else None


def _harvest(section: Section, path: str, problems: Problems) -> HarvestSettings | None:
    before = len(problems.found)
    keys = decode(HarvestKeys, section, path, problems)
    # Seams are decoded even if the rest is wrong, so that one message lists everything.
    seams = _seams(section, keys or HarvestKeys(data_source=DEFAULT_DATA_SOURCE), path, problems)
    if keys is None or len(problems.found) > before:
        return None
    return HarvestSettings(
        name=keys.name or instance_name(),
        outbox=keys.outbox_table,
        dialect=seams[Seam.DIALECT],
        elector=seams[Seam.ELECTOR],
        affinity=seams[Seam.AFFINITY],
        publisher=seams[Seam.PUBLISHER],
        delivery=keys.delivery,
        engine=seams[Seam.ENGINE],
        limits=keys.limits,
        failures=keys.failures,
        topics=keys.topics,
    )


def _seams(section: Section, keys: HarvestKeys, path: str, problems: Problems) -> dict[Seam, Any]:
    nodes = {seam: section.entries[seam][1] if seam in section.entries else None for seam in Seam}
    data_source = keys.data_source
    if data_source is None and driver_of(Seam.DIALECT, nodes[Seam.DIALECT]) == DEFAULT_DRIVERS[Seam.DIALECT]:
        data_source = DEFAULT_DATA_SOURCE
    shared = Shared(
        table=keys.outbox_table,
        data_source=data_source,
        password=keys.password,
        base_kafka={**DEFAULT_BROKERS, **keys.base_kafka_config},
        producer_kafka=keys.producer_kafka_config,
        leader_group_id=keys.leader_group_id or None,
        leader_topic=keys.leader_topic or None,
        min_poll_interval=keys.limits.min_poll_interval,
        heartbeat_timeout=keys.limits.heartbeat_timeout,
        stop_after=keys.failures.stop_after,
        topics=keys.topics,
    )
    at = section.place, path
    # The dialect is told where rows come from, and an elector may use the dialect.
    affinity = choose(Seam.AFFINITY, nodes[Seam.AFFINITY], at, shared, problems)
    shared = replace(shared, affinity=affinity)
    dialect = choose(Seam.DIALECT, nodes[Seam.DIALECT], at, shared, problems)
    shared = replace(shared, dialect=dialect)
    chosen = {Seam.AFFINITY: affinity, Seam.DIALECT: dialect}
    rest = [seam for seam in Seam if seam not in chosen]
    return chosen | {seam: choose(seam, nodes[seam], at, shared, problems) for seam in rest}
