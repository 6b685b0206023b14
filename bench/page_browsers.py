"""Measures what browsers on the page take from the lanes: of the rate of a drain, and of latency after it.

Alternates between a harvester without ``http.listen``, one that serves nobody, and one with ``--browsers``
browsers on its page, each of which polls as the page does, and a scrape of its metrics every second. Prints
rates, how long the browsers waited, and processor time: the harvester's of a record, the harvester's while
there is nothing to harvest, and that of the browsers. The browsers run on the same machine: what they take
themselves is a part of what the rate loses.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from urllib.parse import quote

import psutil
from environment import environment
from latency import measure
from monitoring_cost import PORT, WARM_UP_ROWS, drain, running

POLL_SECONDS = 2.0
"""When a page polls first, and how often where the server does not say."""

SETTLE_SECONDS, IDLE_SECONDS = 5.0, 15.0
"""How long browsers come in; for how long a harvester is measured that has nothing to harvest."""

STEADY_RATE, STEADY_SECONDS = 1000, 8.0
"""Records per second, and for how long, while latencies are measured."""

OFF, ALONE, WATCHED = "off", "on", "browsers"


@dataclass
class Answers:
    """What browsers got, and what it took them.

    Attributes:
        times: Seconds that each answer took.
        unchanged: Answers without a body.
        failed: Requests without an answer: the server had closed the connection.
        size: Bytes of all bodies.
        seconds: For how long they asked.
        processor: Their processor time, in seconds.
    """

    times: list[float] = field(default_factory=list)
    unchanged: int = 0
    failed: int = 0
    size: int = 0
    seconds: float = 0.0
    processor: float = 0.0


class Browser:
    """Asks for one page again and again on one connection, which it opens anew where the server closed it."""

    def __init__(self, path: str, answers: Answers) -> None:
        self._path = path
        self._answers = answers
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._tag = ""

    async def poll(self, seconds: float, delay: float) -> None:
        """Asks until it is cancelled, as often as the server says, or else each ``seconds``."""
        await asyncio.sleep(delay)
        try:
            while True:
                began, pause = time.monotonic(), 0.0
                try:
                    pause = await self._ask()
                    self._answers.times.append(time.monotonic() - began)
                except (ConnectionError, asyncio.IncompleteReadError):
                    self._connection = None
                    self._answers.failed += 1
                await asyncio.sleep(pause or seconds)
        finally:
            if self._connection is not None:
                self._connection[1].close()

    async def _ask(self) -> float:
        if self._connection is None or self._connection[0].at_eof():
            self._connection = await asyncio.open_connection("127.0.0.1", PORT)
        reader, writer = self._connection
        condition = f"If-None-Match: {self._tag}\r\n" if self._tag else ""
        writer.write(f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n{condition}\r\n".encode())
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if " 304 " in status:
            self._answers.unchanged += 1
        elif " 200 " in status:
            body = await reader.readexactly(int(headers["content-length"]))
            self._answers.size += len(body)
        else:
            sys.exit(f"{self._path}: {status}")
        self._tag = headers.get("etag", "")
        return float(headers.get("outbox-pause", 0))


async def browse(browsers: int) -> None:
    """Polls until it is ended; then prints what the answers took."""
    answers, began = Answers(), time.monotonic()
    live = f"/outbox/live?name={quote('outbox')}"
    pages = [Browser(live, answers).poll(POLL_SECONDS, n * POLL_SECONDS / browsers) for n in range(browsers)]
    everybody = asyncio.gather(*pages, Browser("/metrics", Answers()).poll(1.0, 0.0))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    ended = asyncio.ensure_future(reader.read())
    await asyncio.wait([everybody, ended], return_when=asyncio.FIRST_COMPLETED)
    answers.seconds, answers.processor = time.monotonic() - began, time.process_time()
    if everybody.done():
        everybody.result()
    everybody.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await everybody
    print(json.dumps(asdict(answers)))


@contextlib.contextmanager
def browsing(browsers: int, answers: list[Answers]) -> Iterator[None]:
    """Runs the browsers in a process of their own."""
    command = [sys.executable, __file__, "--browse", "--browsers", str(browsers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        printed, _ = process.communicate()
        answers.append(Answers(**json.loads(printed)))


def idle(process: psutil.Process) -> float:
    """Returns the harvester's processor time of a second in which it has nothing to harvest."""
    before = process.cpu_times()
    time.sleep(IDLE_SECONDS)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / IDLE_SECONDS


def settings_name(who: str) -> str:
    """Returns which of the contenders of ``monitoring_cost`` this one is."""
    return "off" if who == OFF else "on"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--browsers", type=int, default=200)
    parser.add_argument("--browse", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.browse:
        asyncio.run(browse(arguments.browsers))
        return
    contenders = [OFF, ALONE, WATCHED]
    rates: dict[str, list[float]] = {who: [] for who in contenders}
    costs: dict[str, list[float]] = {who: [] for who in contenders}
    latencies: dict[str, list[float]] = {who: [] for who in contenders}
    idles: dict[str, list[float]] = {who: [] for who in contenders}
    memory: dict[str, list[float]] = {who: [] for who in contenders}
    answers: list[Answers] = []
    with environment() as on:
        topic = on.topic()
        for number in range(arguments.rounds):
            for who in contenders if number % 2 == 0 else reversed(contenders):
                with running(on, settings_name(who), "at-least-once", None) as process:
                    drain(on, process, topic, WARM_UP_ROWS)
                    watched = (
                        browsing(arguments.browsers, answers) if who == WATCHED else contextlib.nullcontext()
                    )
                    with watched:
                        time.sleep(SETTLE_SECONDS)
                        idles[who].append(idle(process))
                        rate, cost = drain(on, process, topic, arguments.rows)
                        memory[who].append(process.memory_info().rss / 2**20)
                        late, _ = measure(on, on.topic(), STEADY_RATE, STEADY_SECONDS, 1000)
                latencies[who] += late
                rates[who].append(rate)
                costs[who].append(cost)
                print(f"{who:>8} {rate:10,.0f} rows/s {cost:8.2f} µs of processor time a row", flush=True)
    for who in contenders:
        ratios = [rate / other for rate, other in zip(rates[who], rates[OFF], strict=True)]
        rate, cost, ratio, rest, size = map(
            statistics.median, (rates[who], costs[who], ratios, idles[who], memory[who])
        )
        cuts = statistics.quantiles(latencies[who], n=100)
        print(
            f"{who:>8}: median {rate:,.0f} rows/s, {ratio:.3f} of {OFF} paired, {cost:.2f} µs a row; "
            f"at {STEADY_RATE:,}/s p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms; "
            f"{rest:.3f} of a core while there is nothing to harvest; {size:.0f} MB"
        )
    tell(answers)


def tell(answers: list[Answers]) -> None:
    """Prints what browsers got, and what they took."""
    times = sorted(time for each in answers for time in each.times)
    late = times[int(len(times) * 0.99)]
    seconds, processor = sum(each.seconds for each in answers), sum(each.processor for each in answers)
    print(
        f"{len(times):,} answers to browsers, {len(times) / seconds:.0f} a second, "
        f"{sum(each.unchanged for each in answers):,} of them without a body, "
        f"{sum(each.failed for each in answers):,} requests without an answer, "
        f"{sum(each.size for each in answers) / seconds / 1000:,.0f} kB a second: "
        f"median {1e3 * statistics.median(times):.0f} ms, 99 % within {1e3 * late:.0f} ms"
    )
    print(f"the browsers themselves, and the scrape: {processor / seconds:.3f} of a core")


if __name__ == "__main__":
    main()
