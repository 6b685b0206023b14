"""The command line: one subcommand for each table, ``all`` of them, and ``report``."""

from __future__ import annotations

import argparse
import platform
import shlex
import signal
import sys
from pathlib import Path

from bench.compare.bench import Bench
from bench.compare.databases import POSTGRES, database
from bench.compare.plot import plot
from bench.compare.registry import candidates
from bench.compare.report import report
from bench.compare.results import Results, machine, now
from bench.compare.servers import open_servers, say
from bench.compare.tables import TABLES, Table

RESULTS = Path(__file__).parents[1] / "results"

EXAMPLES = """
Examples, from the root of the repository:

  uv run python -m bench.compare drain                       the whole table, as documented
  uv run python -m bench.compare drain --rows 50000 --rounds 1 --candidates exactly-once/inline debezium
  uv run python -m bench.compare latency --rates 1000 --seconds 20
  uv run python -m bench.compare all --quick                 every table, small: is anything broken?
  uv run python -m bench.compare report bench/results/*.json --into docs/performance.md
  uv run --with matplotlib python -m bench.compare plot bench/results/*.json --into docs/performance

Each run writes a dated file into bench/results after every single measurement, so that nothing is lost when
it is stopped; progress goes to standard error. Only ratios within one run mean anything, on a quiet machine.
Debezium is fetched from Maven Central into $OUTBOX_CACHE (~/.cache/outbox); goharvest needs --goharvest.
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    root = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="TABLE")
    for table in TABLES:
        command = commands.add_parser(table.name, help=table.help, description=table.help)
        _shared(command, table.candidates, table.databases)
        table.options(command)
        command.set_defaults(tables=[table])
    everything = commands.add_parser("all", help="every table above, one after the other, into one file")
    _shared(everything, None, (POSTGRES,))
    for table in TABLES:
        table.options(everything)
    everything.set_defaults(tables=TABLES)
    told = commands.add_parser("report", help="write the tables and plots of files with results")
    told.add_argument("files", nargs="+", type=Path)
    told.add_argument("--into", type=Path, help="a Markdown page; what is between its marks is replaced")
    drawn = commands.add_parser("plot", help="draw results as SVG; needs matplotlib")
    drawn.add_argument("files", nargs="+", type=Path)
    drawn.add_argument("--into", type=Path, required=True, help="the folder")
    return root


def _shared(
    command: argparse.ArgumentParser, default: tuple[str, ...] | None, databases: tuple[str, ...]
) -> None:
    chosen = " ".join(default) if default else "those of each table"
    command.add_argument("--candidates", nargs="+", metavar="NAME", help=f"default: {chosen}")
    command.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    command.add_argument("--quick", action="store_true", help="one small round: seconds instead of minutes")
    command.add_argument("--goharvest", type=Path, metavar="PATH", help="its repository, or its built reaper")
    command.add_argument("--database", default=POSTGRES, choices=databases, help="the database (postgres)")
    command.add_argument(
        "--postgres",
        default="local",
        help="local (default; else embedded), embedded, or a folder of programs",
    )
    command.add_argument("--kafka", default="3.9.1", help="the broker's version (3.9.1; goharvest needs 3.9)")
    command.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the database"
    )
    command.add_argument(
        "--warm-up", type=float, default=90, metavar="SECONDS", help="how long the broker is warmed up (90)"
    )
    command.add_argument("--out", type=Path, default=RESULTS, help="the folder of results (bench/results)")


def measure(arguments: argparse.Namespace, tables: list[Table]) -> Path:
    """Measures tables, one after the other; returns the file of the results."""
    found = candidates(arguments.database, arguments.goharvest)
    unknown = sorted(set(arguments.candidates or ()) - set(found))
    if unknown:
        sys.exit(f"no such candidate: {', '.join(unknown)}; there are: {', '.join(found)}")
    started = now()
    arguments.out.mkdir(parents=True, exist_ok=True)
    out: Path = arguments.out / f"{started:%Y-%m-%d-%H%M%S}-{arguments.command}.json"
    settings = dict(each.split("=", 1) for each in arguments.set)
    results = Results({started.isoformat(): {"command": _command(), **machine()}})
    server = database(arguments.database, arguments.postgres, settings)
    with open_servers(server, arguments.kafka) as servers:
        conditions = results.conditions[started.isoformat()]
        conditions |= {server.name: server.version(), "kafka": arguments.kafka, "settings": settings}
        bench = Bench(servers, found, 1 if arguments.quick else arguments.rounds, results, out)
        chosen = {
            table: arguments.candidates or [name for name in table.candidates if name in found]
            for table in tables
        }
        bench.prepare(list(dict.fromkeys(name for names in chosen.values() for name in names)))
        if not arguments.quick:
            say(f"warming the broker up for {arguments.warm_up:g} s")
            servers.warm_up(arguments.warm_up)
        for table, names in chosen.items():
            table.run(bench, arguments, names)
        used = {each.candidate for each in results.measurements}
        conditions["versions"] = {
            name: found[name].version() for name in sorted(used) if found[name].version()
        }
        results.write(out)
    return out


def _command() -> str:
    """Returns the command without the paths of this machine."""
    words = [word if "/" not in word or word.count("/") == 1 else "…" for word in sys.argv[1:]]
    return shlex.join(["python", "-m", "bench.compare", *words])


def main() -> None:
    if sys.platform != "linux":
        say(f"warning: made for Linux; on {platform.system()} memory and CPU may not be measured")
    arguments = parser().parse_args()
    if arguments.command == "report":
        print(report(arguments.files, arguments.into))
        return
    if arguments.command == "plot":
        print("\n".join(map(str, plot(arguments.files, arguments.into))))
        return
    # Unwinds all that was started; after SIGKILL the servers and candidates end by themselves.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    out = measure(arguments, list(arguments.tables))
    print(report([out], None))
    say(f"results: {out}")


if __name__ == "__main__":
    main()
