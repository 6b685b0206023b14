"""Reads the topic anew, by consumers of both isolation levels, when something is missing or double."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_api import OutboxError
from outbox_audit import Audit, Isolation, read_topic

from .fault import EXACTLY_ONCE
from .judge import Round
from .site import Site


def has_defects(site: Site, each: Round) -> bool:
    """Returns whether the judge has found anything missing, double, foreign or out of order in a round."""
    double = each.repeated if site.delivery == EXACTLY_ONCE else 0
    return bool(each.lost or each.foreign or each.overtaken or double)


def gather(site: Site, rounds: Sequence[Round]) -> str | None:
    """Describes what fresh consumers find, and where all files are; enters it into the rounds with defects.

    Returns:
        The same text; ``None`` if nothing was missing or double.
    """
    defective = [each for each in rounds if has_defects(site, each)]
    if not defective:
        return None
    counts = "; ".join(f"{isolation}: {_count(site, isolation)}" for isolation in Isolation)
    text = f"{site.shop.topic} read again: {counts}; files in {site.folder}"
    for each in defective:
        each.evidence = text
    site.note("evidence", faults=[each.fault.name for each in defective], text=text)
    return text


def _count(site: Site, isolation: Isolation) -> str:
    audit = Audit()
    for key, number in site.shop.sold():
        audit.committed(key, number)
    messages = 0
    settings = {"bootstrap.servers": site.kafka.bootstrap, "log_level": 0}
    try:
        for key, sequence in read_topic(settings, site.shop.topic, isolation=isolation):
            audit.arrived(key, sequence)
            messages += 1
    except OutboxError as error:
        return f"{messages} messages, then {error}"
    found = audit.result()
    return (
        f"{messages} messages of {found.sent} records, {found.lost} lost, {found.repeated} repeated, "
        f"{found.overtaken} overtaken, {found.reappeared} reappeared, {found.foreign} foreign"
    )
