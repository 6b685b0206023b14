"""Reads ``outboxes:``: several outboxes for one process, which have in common what ``harvest:`` says."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from outbox_api.application.registry import Seam

from outbox_core.config.document import Node, Scalar, Section, is_null, with_value
from outbox_core.config.harvest import driver_of, read_harvest
from outbox_core.config.problems import Place, Problems, join
from outbox_core.settings import HarvestSettings, Template
from outbox_core.settings.election import instance_name

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OF_THE_PROCESS = ("engine", "name")
"""Keys that only ``harvest:`` may have where there are several outboxes."""
_OF_ONE_ELECTION = ("leaderGroupID", "leaderTopic")
_SEAMS = frozenset(Seam)


def read_outboxes(
    node: Node, common: Section, overrides: Mapping[str, str], problems: Problems
) -> list[HarvestSettings | Template | None]:
    """Returns the settings of each outbox and each template, or ``None`` for one that has a problem."""
    if "name" not in common.entries:  # made once, so that all have the same
        common = with_value(common, ("name",), Scalar(common.place, instance_name()))
    sections = _sections(node, common, problems)
    made = []
    for label, section in sections.items():
        found = Problems()
        made.append(_read(label, section, overrides, found))
        problems.add_others(found)  # what is wrong with the common part is told once
    _refuse_twins([each for each in made if isinstance(each, HarvestSettings)], sections, problems)
    return made


def overridden(section: Section, overrides: Mapping[str, str]) -> Section:
    """Puts values in the place of what is written; the options of another driver go with it."""
    for key, value in overrides.items():
        path, present = key.split("."), section
        for step in path[:-1]:
            node = present.value(step)
            present = node if isinstance(node, Section) else Section(section.place)
        if path[-1] == "driver" and present.entries and driver_of(Seam(path[-2]), present) != value:
            path = path[:-1]
        section = with_value(section, path, Scalar(Place("command line"), value))
    return section


def _sections(node: Node, common: Section, problems: Problems) -> dict[str, Section]:
    """Returns label → the section of that outbox, merged with what all have in common.

    A mapping is merged key by key, except that of a seam for which the outbox chooses another driver.
    """
    if not isinstance(node, Section) or not node.entries:
        problems.add(node.place, "outboxes", "expected a mapping: a label for each outbox, and its keys")
        return {}
    _refuse_shared_election(common, problems)
    sections: dict[str, Section] = {}
    for label, (place, own) in node.entries.items():
        path = join("outboxes", label)
        if not _LABEL.fullmatch(label):
            problems.add(place, path, "a label consists of letters, digits, '-', '_' and '.'")
        elif isinstance(own, Section) or is_null(own):
            section = own if isinstance(own, Section) else Section(place)
            for key in OF_THE_PROCESS:
                if key in section.entries:
                    message = f"belongs to the process: write it as harvest.{key}"
                    problems.add(section.entries[key][0], join(path, key), message)
            sections[label] = _merged(common, section)
        else:
            problems.add(own.place, path, "expected a mapping of keys to values, as below 'harvest:'")
    return sections


def _read(
    label: str, section: Section, overrides: Mapping[str, str], problems: Problems
) -> HarvestSettings | Template | None:
    """Makes the settings of one of several outboxes, or of a template of outboxes."""
    own = {
        key.removeprefix("harvest."): value for key, value in overrides.items() if key.startswith("harvest.")
    }
    section = overridden(section, own)
    path, pattern = join("outboxes", label), _pattern_of(section)
    if pattern is None:
        made = read_harvest(section, path, problems)
        return made and replace(made, label=label)

    def settings_for(table: str) -> HarvestSettings:
        found = Problems()
        named = with_value(section, ("outboxTable",), Scalar(section.place, table))
        settings = read_harvest(named, path, found)
        found.raise_any()
        assert settings is not None  # noqa: S101 - there is no problem
        return replace(settings, label=f"{label}/{table}")

    probe = with_value(section, ("outboxTable",), Scalar(section.place, pattern.replace("*", "x")))
    return Template(label, pattern, settings_for) if read_harvest(probe, path, problems) else None


def _pattern_of(section: Section) -> str | None:
    """Returns the pattern of a template, an ``outboxTable`` with ``*``; ``None`` for a single outbox."""
    table = section.value("outboxTable")
    named = table.text if isinstance(table, Scalar) else None
    return named if named and "*" in named else None


def _refuse_twins(
    outboxes: Sequence[HarvestSettings], sections: Mapping[str, Section], problems: Problems
) -> None:
    """Adds a problem for each outbox that is another one's table in the same database."""
    for number, one in enumerate(outboxes):
        for other in outboxes[:number]:
            if one.table_identity == other.table_identity:
                place = sections[one.label].place
                message = f"is the same table in the same database as outboxes.{other.label}"
                problems.add(place, join("outboxes", one.label), message)


def _refuse_shared_election(common: Section, problems: Problems) -> None:
    """Each outbox has an election of its own."""
    elector = common.value("elector")
    options = elector if isinstance(elector, Section) else Section(common.place)
    for section, path in ((common, "harvest"), (options, "harvest.elector")):
        for key in _OF_ONE_ELECTION:
            if not is_null(section.value(key)):
                message = "would be the same for all outboxes: write it for each outbox, or leave it out"
                problems.add(section.entries[key][0], join(path, key), message)


def _merged(common: Section, own: Section, *, top: bool = True) -> Section:
    entries: dict[str, tuple[Place, Node]] = dict(common.entries)
    for key, (place, node) in own.entries.items():
        before = common.value(key)
        if isinstance(before, Section) and isinstance(node, Section):
            other_driver = top and key in _SEAMS and _other_driver(Seam(key), before, node)
            entries[key] = (place, node if other_driver else _merged(before, node, top=False))
        else:
            entries[key] = (place, node)
    return Section(own.place, entries)


def _other_driver(seam: Seam, common: Section, own: Section) -> bool:
    return "driver" in own.entries and driver_of(seam, own) != driver_of(seam, common)
