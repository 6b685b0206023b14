"""From goharvest, and back to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from outbox_servers.services.cache import cached_folder
from outbox_servers.services.process import ServerProcess

from bench.compare.candidates import CandidateError
from bench.compare.servers import Servers, say
from bench.leaving import outboxes
from bench.leaving.application import HarvestedTable, open_shop, paused
from bench.leaving.verdict import Moments, Verdict, judge
from tests.harvesters import Fleet, until
from tests.shop import Shop

KAFKA = "3.9.1"
"""The newest broker that goharvest's client knows."""
MODULE = "github.com/obsidiandynamics/goharvest"
VERSION = "v0.3.1"
REAPERS = 2
WRITING = 0.1
"""For how long a writer leaves a transaction open, in seconds: reapers keep up with that."""
LEADS = "Starting background delivery handler"


def reaper() -> Path:
    """Returns goharvest's program, which is built once.

    Raises:
        CandidateError: There is no Go compiler, or the build failed.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise CandidateError("goharvest is written in Go, and there is no Go compiler here")

    def build(folder: Path) -> None:
        say(f"building goharvest {VERSION} (once)")
        # A module of its own: what goharvest's lists of modules lack is added to this one's.
        (folder / "go.mod").write_text("module reapers\n\ngo 1.21\n")
        for command in (
            ["get", f"{MODULE}@{VERSION}"],
            ["build", "-mod=mod", "-o", "reaper", f"{MODULE}/cmd/reaper"],
        ):
            done = subprocess.run([go, *command], check=False, capture_output=True, text=True, cwd=folder)
            if done.returncode:
                raise CandidateError(f"go {command[0]} failed:\n{done.stderr[-2000:]}")

    return cached_folder(f"goharvest-{VERSION}-{os.uname().machine}", build, progress=say) / "reaper"


def former_file(shop: Shop, folder: Path, leader_topic: str) -> Path:
    """Writes the file of the reapers."""
    harvest = {
        "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
        "producerKafkaConfig": {"compression.type": "lz4", "delivery.timeout.ms": 10_000},
        "leaderTopic": leader_topic,
        "leaderGroupID": leader_topic,
        "dataSource": f"{shop.dsn} sslmode=disable",
        "outboxTable": "outbox",
        # Small marks: a slow machine otherwise has no reaper that sends a whole one in time, which repeats.
        "limits": {"heartbeatTimeout": "5s", "sendConcurrency": 4, "markQueryRecords": 20},
    }
    path = folder / "reaper.yaml"
    path.write_text(json.dumps({"harvest": harvest, "logging": {"level": "Debug"}}))
    return path


def file_of_outbox(former: Path, delivery: str) -> Path:
    """Returns the reapers' file itself, or one with the other delivery beside what it says."""
    if delivery == "at-least-once":
        return former
    content: dict[str, Any] = json.loads(former.read_text())
    content["harvest"]["delivery"] = delivery
    path = former.with_name("outbox.yaml")
    path.write_text(json.dumps(content))
    return path


def start(stack: ExitStack, shop: Shop, settings: Path, when: str) -> list[ServerProcess]:
    """Starts reapers, and returns when all take part and one leads; kills them when the stack is left."""
    program, started, fleet = reaper(), [], Fleet(settings.parent, shop)
    fleet.group = json.loads(settings.read_text())["harvest"]["leaderGroupID"]
    for number in range(1, REAPERS + 1):
        log = settings.with_name(f"reaper-{when}-{number}.log")
        process = ServerProcess(f"reaper {number}", [str(program), "-f", str(settings)], log=log)
        stack.callback(process.kill)
        started.append(process)

    def lead() -> bool:
        assert all(each.running for each in started), [each.log_tail() for each in started]
        # The next reaper that joins takes over from the first, as goharvest has it.
        leads = any(LEADS in each.log.read_text(errors="replace") for each in started)
        return leads and fleet.members() == REAPERS

    until(lead, "a reaper leads", 120)
    return started


def play(servers: Servers, folder: Path, delivery: str, *, pause: bool, seconds: float) -> Verdict:
    """Makes one round: reapers, outbox, reapers. Comments are the steps of the page.

    Args:
        servers: Database and broker.
        folder: For files and logs.
        delivery: The mode of outbox.
        pause: Whether writers pause while harvesters change.
        seconds: For how long each harvests between two changes.
    """
    database = HarvestedTable(servers.database.make(f"shop_{folder.name}"))
    shop = open_shop(database, servers.kafka, f"sales-{folder.name}")
    former = former_file(shop, folder, servers.topic("neli", 1))
    settings = file_of_outbox(former, delivery)
    with ExitStack() as stack:
        reapers = start(stack, shop, former, "before")
        with shop.selling(WRITING):
            time.sleep(seconds)
            # From goharvest. 1:
            outboxes.prepare(settings)
            with paused(shop, pause):  # 2
                if pause:
                    shop.wait_until_harvested(60)
                moments = Moments(there=time.time())
                for each in reapers:  # 3
                    each.stop()
                harvesters = outboxes.start(stack, settings)  # 4
            outboxes.check(settings)
            moments.arrived = time.time()
            time.sleep(seconds)
            # Go back. 1:
            with paused(shop, pause):
                if pause:
                    outboxes.wait_for_backlog(settings, 0)  # 2
                moments.back = time.time()
                outboxes.leave(harvesters)
                start(stack, shop, former, "after")  # 3
            moments.returned = time.time()
            time.sleep(seconds)  # 4
        shop.wait_until_harvested(120)
    return judge(shop, moments)
