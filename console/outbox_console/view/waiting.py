"""What the page says of what waits: without I/O."""

from __future__ import annotations

from outbox_core.operations import WaitingState, WhatWaits
from outbox_core.text.wording import coarse_duration, counted

from outbox_console.view.dead_letters import short

_UNKNOWN = "–"  # noqa: RUF001 - a dash


def sentences(waits: WhatWaits, topic: str | None, *, lanes_mark: bool) -> list[str]:
    """Returns what waits, of a topic or of all, and why; ``lanes_mark`` says whether any row is marked."""
    looked = counted(waits.rows, "row") if waits.exact else f"the first {counted(waits.rows, 'row')}"
    if not waits.rows:
        return ["Nothing waits."]
    if topic is None:
        return [f"Seen: {looked}, in the order of their ids."]
    if not waits.topics:
        return [f"Of topic {short(topic)} there is none among {looked}: nothing of it waits for long."]
    [of_topic] = waits.topics
    group = of_topic.group
    share = f"{group.rows:,} of {looked} ({of_topic.share:.0%})"
    said = [f"Topic {short(topic)} has {share}, the oldest for {age(group.oldest)}."]
    if of_topic.state is WaitingState.PAUSED:
        said.append("It is paused.")
    if of_topic.parked_keys:
        said.append(f"Parked keys of it: {of_topic.parked_keys:,}. Their rows wait for an operator.")
    held = sum(each.group.rows for each in waits.keys if each.state is WaitingState.PARKED)
    if held:
        said.append(f"Rows of parked keys among them: {held:,}.")
    if waits.keys and waits.keys[0].group.rows * 2 > group.rows > 1:
        hot = waits.keys[0].group.rows
        said.append(
            f"One key has {hot:,} of its rows. Those of one key are sent in order, by one lane:"
            " more lanes do not make it faster."
        )
    if of_topic.state is WaitingState.FREE and lanes_mark:
        said.append("Lanes have marked rows of other topics, and none of it: older rows are taken first.")
    return said


def age(seconds: float | None) -> str:
    """Returns an age; a dash if it is not known."""
    return _UNKNOWN if seconds is None else coarse_duration(seconds)


def rate(figure: float | None) -> str:
    """Returns how many there are in a second; a dash if it is not known."""
    return _UNKNOWN if figure is None else f"{figure:,.1f}"


def number(figure: int) -> str:
    """Returns a whole number."""
    return f"{figure:,}"
