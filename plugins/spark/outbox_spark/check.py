"""What ``outbox check`` shows about the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from outbox_api import Finding, Level, OutboxError

from outbox_spark.jvm import CURE, java_home
from outbox_spark.options import SparkOptions
from outbox_spark.security import check_security


def check(options: SparkOptions, groups: int) -> Sequence[Finding]:
    """Checks that there are Java and task slots, and that nobody else can read tasks."""
    try:
        java = java_home()
    except OutboxError as error:
        return [Finding(Level.ERROR, "Java", str(error), CURE)]
    security = check_security(options.master_for(groups), options.settings)
    return [Finding(Level.OK, "Java", f"found at {java}"), _slots(options.master, groups), *security]


def _slots(master: str | None, groups: int) -> Finding:
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master or "")
    if local is None:
        where = "the embedded Spark has" if master is None else f"at the start {master} is asked for"
        return Finding(Level.OK, "Spark slots", f"{where} a slot for each of the {groups} lane groups")
    slots = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
    if slots >= groups:
        return Finding(Level.OK, "Spark slots", f"{slots} for {groups} lane groups")
    return Finding(
        Level.ERROR,
        "Spark slots",
        f"{groups} lane groups need a slot each, and {master} has {slots}: the others would wait for ever",
        f"set harvest.engine.master to local[{groups + 1}], leave it out, or lower laneGroups",
    )
