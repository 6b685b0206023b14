"""Counts what a checkout is made of: lines, files, arrows of imports, circles, and what commands import.

    uv run python bench/structure.py [CHECKOUT]

The product is api, core, plugins, console and audit without tests. A *room* is what stands directly below a
distribution's package; an *arrow* leads from a room to another one of the same package that it imports, in
functions and for types too. Statements include docstrings. The commands run by the checkout's own ``.venv``;
none needs a service.
"""

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PRODUCT = ("api", "core", "plugins", "console", "audit")
SHOWN = ("outbox_api", "outbox_core", "outbox_postgres", "outbox_kafka", "outbox_console")
COMMANDS = ("--help", "run --help", "drivers", "status", "health --patience 100ms")
PROGRAM = """
import json, sys
from outbox_core.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps([each for each in sys.modules if each.startswith("outbox_")]), file=sys.stderr)
"""


def product(checkout: Path) -> dict[str, tuple[Path, ast.Module]]:
    """Returns module → its file, parsed."""
    listed = subprocess.check_output(["git", "-C", checkout, "ls-files", *PRODUCT], text=True).splitlines()
    found = {}
    for name in listed:
        path = Path(name)
        if path.suffix == ".py" and "tests" not in path.parts and (checkout / path).is_file():
            start = next((at for at, part in enumerate(path.parts) if "outbox_" in part), 0)
            module = ".".join(path.with_suffix("").parts[start:]).removesuffix(".__init__")
            found[module] = (path, ast.parse((checkout / path).read_text("utf-8")))
    return found


def imported(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """Returns the modules of the product that a module imports, in functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield from [inner] if inner in known else [node.module] if node.module in known else []


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns circles of files, until none is left."""
    left, found = {name: set(needs) for name, needs in graph.items()}, []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1]
            found.append(circle)
            left[circle[1]].discard(circle[0])  # graphlib names what is needed before what needs it
        else:
            return found


def commands(checkout: Path) -> Iterator[str]:
    """Says how many modules of ours each command imports."""
    with tempfile.TemporaryDirectory() as folder:
        dialect = {"driver": "sqlite", "dataSource": f"{folder}/none.db"}
        broker = {"driver": "kafka", "kafka": {"bootstrap.servers": "127.0.0.1:1"}}
        harvest = {"dialect": dialect, "publisher": broker, "elector": "lease", "engine": "inline"}
        (Path(folder) / "outbox.yaml").write_text(json.dumps({"harvest": harvest}), "utf-8")
        for command in COMMANDS:
            arguments = [f"{checkout.absolute()}/.venv/bin/python", "-c", PROGRAM, *command.split()]
            done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, check=False)
            modules = json.loads(done.stderr.splitlines()[-1])
            core = sum(each.partition(".")[0] == "outbox_core" for each in modules)
            yield f"outbox {command.partition(' --p')[0]}: {len(modules)} modules of ours, {core} of core"


def main() -> None:
    """Prints the counts."""
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = product(checkout)
    lines = sum(len((checkout / path).read_text("utf-8").splitlines()) for path, _ in found.values())
    count = sum(isinstance(each, ast.stmt) for _, tree in found.values() for each in ast.walk(tree))
    print(f"{lines:,} lines, {count:,} statements, {len(found)} files")
    for package in SHOWN:
        inside = {name: tree for name, (_, tree) in found.items() if name.startswith(f"{package}.")}
        needs = {name: set(imported(tree, inside)) for name, tree in inside.items()}
        rooms = {name.split(".")[1] for name in inside}
        arrows = {(a.split(".")[1], b.split(".")[1]) for a, to in needs.items() for b in to}
        print(f"{package}: {len(rooms)} rooms, {sum(a != b for a, b in arrows)} arrows, {len(inside)} files")
    graph = {name: set(imported(tree, found)) - {name} for name, (_, tree) in found.items()}
    for circle in (every := circles(graph)):
        print("circle:", " -> ".join(circle))
    print(f"{len(every)} circles of files")
    for line in commands(checkout):
        print(line)


if __name__ == "__main__":
    main()
