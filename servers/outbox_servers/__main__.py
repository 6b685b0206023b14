"""Runs services in the foreground and prints their addresses: ``python -m outbox_servers all``.

With ``-- COMMAND`` behind them it runs that command instead, which finds the addresses in its environment
(``POSTGRES``, ``KAFKA``, …), and ends with it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_servers.services import (
    EtcdServer,
    KafkaBroker,
    MariaDbServer,
    MySqlServer,
    PostgresServer,
    ServiceError,
    SparkStandalone,
    ZooKeeperServer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Starts the named services, prints an address per line, and runs until SIGINT or SIGTERM.

    Args:
        arguments: The command line without the program's name; ``None`` for this process's own.

    Returns:
        The exit code: 0, or 1 if a service could not be started; that of the command, if there is one.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    mark = given.index("--") if "--" in given else len(given)
    command = given[mark + 1 :]
    parser = argparse.ArgumentParser(prog="outbox-services", description=__doc__)
    parser.add_argument(
        "services",
        nargs="+",
        choices=["postgres", "mysql", "mariadb", "kafka", "etcd", "zookeeper", "spark", "all"],
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the data in this folder; by default it is deleted at the end"
    )
    options = parser.parse_args(given[:mark])
    chosen = {"postgres", "kafka"} if "all" in options.services else set()
    chosen |= set(options.services) - {"all"}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            addresses = {each: _start(each, stack, options.folder) for each in sorted(chosen)}
            if command:
                variables = {name.upper(): address for name, address in addresses.items()}
                return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode  # noqa: S603 - the user's
            for service, address in addresses.items():
                _print(f"{service}: {address}")
            _print("ready; press Ctrl-C to stop")
            while True:
                signal.pause()
    except ServiceError as error:
        _log(str(error))
        return 1
    except KeyboardInterrupt:
        return 0


def _start(service: str, stack: ExitStack, folder: Path | None) -> str:
    """Starts a service, which the stack stops, and returns its address."""
    data = folder and folder / service
    match service:
        case "postgres":
            address = stack.enter_context(PostgresServer(folder=data, progress=_log)).dsn
        case "mysql":
            address = stack.enter_context(MySqlServer(folder=data, progress=_log)).dsn
        case "mariadb":
            address = stack.enter_context(MariaDbServer(folder=data, progress=_log)).dsn
        case "kafka":
            address = stack.enter_context(KafkaBroker(folder=data, progress=_log)).bootstrap
        case "etcd":
            address = stack.enter_context(EtcdServer(folder=data, progress=_log)).endpoint
        case "zookeeper":
            address = stack.enter_context(ZooKeeperServer(folder=data, progress=_log)).hosts
        case _:
            address = stack.enter_context(SparkStandalone(progress=_log)).master_url
    return address


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the addresses are this program's output


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress of a program in the foreground


if __name__ == "__main__":
    sys.exit(main())
