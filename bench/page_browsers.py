"""Measures what browsers on the page take from the lanes: of the rate of a drain, and of latency after it.

Alternates between a harvester without ``http.listen``, one that serves nobody, and one with ``--browsers``
browsers on its page, each of which polls as the page does, and a scrape of its metrics every second. Prints
rates, the harvester's processor time of a record, and how long the browsers waited. The browsers run on the
same machine: what they take themselves is a part of what the rate loses, and none of the processor time.
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
from urllib.parse import quote

from environment import environment
from latency import measure
from monitoring_cost import PORT, WARM_UP_ROWS, drain, running

POLL_SECONDS = 2.0
"""How often a page polls."""

STEADY_RATE, STEADY_SECONDS = 1000, 8.0
"""Records per second, and for how long, while latencies are measured."""

OFF, ALONE, WATCHED = "off", "on", "browsers"


async def poll(paths: list[str], seconds: float, delay: float, times: list[float]) -> None:
    """Asks for pages in turn on one connection, as a browser does; notes how long each answer took."""
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    try:
        while True:
            for path in paths:
                began = time.monotonic()
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if " 200 " not in head.partition("\r\n")[0]:
                    sys.exit(f"{path}: {head}")
                length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
                await reader.readexactly(int(length.partition(":")[2]))
                times.append(time.monotonic() - began)
            await asyncio.sleep(seconds)
    finally:
        writer.close()


async def browse(browsers: int) -> None:
    """Polls until it is ended; then prints how long the answers took."""
    times: list[float] = []
    live = f"/outbox/live?name={quote('outbox')}"
    pages = [poll([live], POLL_SECONDS, n * POLL_SECONDS / browsers, times) for n in range(browsers)]
    scrape = poll(["/metrics"], 1.0, 0.0, [])
    everybody = asyncio.gather(*pages, scrape)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    ended = asyncio.ensure_future(reader.read())
    await asyncio.wait([everybody, ended], return_when=asyncio.FIRST_COMPLETED)
    if everybody.done():
        everybody.result()
    everybody.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await everybody
    print(json.dumps(sorted(times)))


@contextlib.contextmanager
def browsing(browsers: int, times: list[float]) -> Iterator[None]:
    """Runs the browsers in a process of their own."""
    command = [sys.executable, __file__, "--browse", "--browsers", str(browsers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        printed, _ = process.communicate()
        times += json.loads(printed)


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
    times: list[float] = []
    with environment() as on:
        topic = on.topic()
        for number in range(arguments.rounds):
            for who in contenders if number % 2 == 0 else reversed(contenders):
                with running(on, settings_name(who), "at-least-once", None) as process:
                    drain(on, process, topic, WARM_UP_ROWS)
                    watched = (
                        browsing(arguments.browsers, times) if who == WATCHED else contextlib.nullcontext()
                    )
                    with watched:
                        time.sleep(POLL_SECONDS)
                        rate, cost = drain(on, process, topic, arguments.rows)
                        late, _ = measure(on, on.topic(), STEADY_RATE, STEADY_SECONDS, 1000)
                latencies[who] += late
                rates[who].append(rate)
                costs[who].append(cost)
                print(f"{who:>8} {rate:10,.0f} rows/s {cost:8.2f} µs of processor time a row", flush=True)
    for who in contenders:
        ratios = [rate / other for rate, other in zip(rates[who], rates[OFF], strict=True)]
        rate, cost, ratio = map(statistics.median, (rates[who], costs[who], ratios))
        cuts = statistics.quantiles(latencies[who], n=100)
        print(
            f"{who:>8}: median {rate:,.0f} rows/s, {ratio:.3f} of {OFF} paired, {cost:.2f} µs a row; "
            f"at {STEADY_RATE:,}/s p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
        )
    middle, late = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
    print(
        f"{len(times):,} answers to browsers: median {1e3 * middle:.0f} ms, 99 % within {1e3 * late:.0f} ms"
    )


if __name__ == "__main__":
    main()
