"""``outbox new-dialect``, ``new-elector``, ``new-publisher`` and ``new-engine``: write a distribution."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from outbox_api.application.registry import Seam

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.terminal import output, print_json
from outbox_core.scaffold import distribution, objection, write

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What users will write as 'driver:'.")]

DirectoryOption = Annotated[
    Path,
    typer.Option("--directory", "-d", metavar="DIR", show_default="here", help="Where the new folder goes."),
]


def _create(seam: Seam, name: str, directory: Path, *, testing: str, json: bool) -> None:
    """Writes a distribution, and says how to go on."""
    if reason := objection(name):
        raise typer.BadParameter(reason)
    folder = directory / distribution(name)
    if folder.exists():
        raise typer.BadParameter(f"{folder} exists already, and is left as it is; name another --directory")
    try:
        written = write(seam, name, folder)
    except OSError as error:
        raise typer.BadParameter(f"cannot write {folder}: {error.strerror}") from error
    if json:
        print_json({"folder": str(folder), "files": [str(path) for path in written]})
        return
    steps = (f"cd {folder}", "pip install -e '.[test]'", testing)
    lines = [*(f"wrote {path}" for path in written), "", "now:", *(f"  {step}" for step in steps)]
    output().print("\n".join(lines), soft_wrap=True)


def new_dialect(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create a dialect for another database: a distribution whose tests say what to write next.

    Install it, and **driver: NAME** works.
    """
    testing = "pytest -x    # the first failure says what to write; then the next one does"
    _create(Seam.DIALECT, name, directory, testing=testing, json=json)


def new_elector(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create an elector on another coordinator: a distribution that works, with a file as the coordinator.

    Install it, and **driver: NAME** works.
    """
    testing = "pytest       # passes; then put your coordinator in the place of the file"
    _create(Seam.ELECTOR, name, directory, testing=testing, json=json)


def new_publisher(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create a publisher to another broker: a distribution that works, with files as the broker.

    Install it, and **driver: NAME** works.
    """
    testing = "pytest       # passes; then put your broker in the place of the files"
    _create(Seam.PUBLISHER, name, directory, testing=testing, json=json)


def new_engine(name: NameArgument, directory: DirectoryOption = Path(), json: JsonOption = False) -> None:
    """Create an engine: a distribution that works, with processes of this machine.

    Install it, and **engine: NAME** works.
    """
    testing = "pytest       # passes; then put your own processes in the place of this machine's"
    _create(Seam.ENGINE, name, directory, testing=testing, json=json)


def _command(function: Callable[..., None], example: str) -> Command:
    line = f"outbox {function.__name__.replace('_', '-')} {example}"
    elsewhere = f"{line} --directory ~/src   # writes ~/src/{distribution(example)}"
    return Command(function, (line, elsewhere))


COMMANDS = {
    each.name: each
    for each in (
        _command(new_dialect, "my_db"),
        _command(new_elector, "my_lock"),
        _command(new_publisher, "my_broker"),
        _command(new_engine, "my_cluster"),
    )
}
