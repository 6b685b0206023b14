"""Tokens, attempts and epochs: what counts is whether one is the latest, so older ones are all the same."""

from __future__ import annotations

from .servers import Right
from .world import Call, Process, World

_LATEST, _OLD = 2, 1


def simplified(world: World) -> World:
    """Returns a world that behaves alike, with the lowest of numbers.

    So there are fewer states, and no more of them for all that starts anew again and again.
    """
    fence = world.database.fence
    low = all(row.token <= _LATEST and row.attempt <= _LATEST for row in fence)
    if low and all(channel.epoch <= _LATEST for channel in world.channels):
        return world
    rows = tuple(
        row._replace(token=_place(row.token, row.token), attempt=_place(row.attempt, row.attempt))
        for row in fence
    )
    return world._replace(
        database=world.database._replace(fence=rows),
        disk=world.disk._replace(fence=rows),  # the same: changes of the fence are durable
        channels=tuple(each._replace(epoch=_place(each.epoch, each.epoch)) for each in world.channels),
        processes=tuple(_process(world, process) for process in world.processes),
        strays=tuple(_call(world, call) for call in world.strays),
    )


def _place(number: int, latest: int) -> int:
    return number if number <= 0 else _LATEST if number == latest else _OLD


def _attempt(world: World, lane: int, token: int, attempt: int) -> int:
    row = world.database.fence[lane]
    return _place(attempt, row.attempt if token == row.token else 0)


def _process(world: World, process: Process) -> Process:
    lanes = tuple(
        lane._replace(
            attempt=_attempt(world, lane.number, process.token, lane.attempt),
            epoch=_place(lane.epoch, world.channels[lane.channel].epoch),
            advance=lane.advance and lane.advance._replace(call=_call(world, lane.advance.call)),
        )
        for lane in process.lanes
    )
    token = _place(process.token, world.database.fence[0].token)
    return process._replace(token=token, lanes=lanes)


def _call(world: World, call: Call) -> Call:
    latest = world.database.fence[0].token
    match call:
        case Call("enter", (lane, lanes, token)):
            return Call("enter", (lane, lanes, _place(token, latest)))
        case Call(
            "advance" | "mark" | "park" | "set_transactional" as name, ((lane, lanes, token, attempt), *rest)
        ):
            right: Right = (lane, lanes, _place(token, latest), _attempt(world, lane, token, attempt))
            return Call(name, (right, *rest))
        case Call("fill" | "commit" | "freshen" | "end" as name, (number, epoch, *rest)):
            return Call(name, (number, _place(epoch, world.channels[number].epoch), *rest))
    return call
