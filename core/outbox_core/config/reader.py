"""Reads a configuration: goharvest's YAML keys, and our own."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outbox_api.base.errors import ConfigError
from outbox_api.support.ownership import other_writer

from outbox_core.config.decode import Raw, decode
from outbox_core.config.document import Node, Section, is_null, read, tree
from outbox_core.config.environment import Environment
from outbox_core.config.harvest import read_harvest
from outbox_core.config.outboxes import overridden, read_outboxes
from outbox_core.config.problems import Place, Problems
from outbox_core.settings import HarvestSettings, Settings, Template
from outbox_core.settings.election import own_topics
from outbox_core.settings.http import HttpSettings
from outbox_core.settings.logs import LoggingSettings

FILE_VARIABLE = "OUTBOX_FILE"
DEFAULT_FILE = Path("outbox.yaml")


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
    root = overridden(root, overrides)
    top = decode(FileKeys, root, "", problems)
    # The rest is read even if this is wrong, so that one message lists everything.
    common, several = _section(root.value("harvest"), "harvest", root.place, problems), root.value("outboxes")
    if several is not None:
        made = read_outboxes(several, common, overrides, problems)
    else:
        made = [read_harvest(common, "harvest", problems)]
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
        several=several is not None,
        logging=top.logging,
        http=top.http,
    )


def _section(node: Node | None, path: str, place: Place, problems: Problems) -> Section:
    if isinstance(node, Section):
        return node
    if node is not None and not is_null(node):
        problems.add(node.place, path, "expected a mapping of keys to values")
    return Section(place)
