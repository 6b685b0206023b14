"""``outbox new-dialect``: creates the plugin for another database."""

from pathlib import Path
from typing import Annotated

import typer

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.terminal import output, print_json
from outbox_core.scaffold import distribution, objection, write


def new_dialect(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What users will write as 'driver:'.")],
    directory: Annotated[
        Path,
        typer.Option(
            "--directory", "-d", metavar="DIR", show_default="here", help="Where the new folder goes."
        ),
    ] = Path(),
    json: JsonOption = False,
) -> None:
    """Create a dialect for another database: a distribution whose tests say what to write next.

    You need not register it anywhere: install it, and **driver: NAME** works.
    """
    if reason := objection(name):
        raise typer.BadParameter(reason)
    folder = directory / distribution(name)
    if folder.exists():
        raise typer.BadParameter(f"{folder} exists already, and is left as it is; name another --directory")
    try:
        written = write(name, folder)
    except OSError as error:
        raise typer.BadParameter(f"cannot write {folder}: {error.strerror}") from error
    if json:
        print_json({"folder": str(folder), "files": [str(path) for path in written]})
        return
    steps = (
        f"cd {folder}",
        "pip install -e '.[test]'",
        "pytest -x    # the first failure says what to write; then the next one does",
    )
    lines = [*(f"wrote {path}" for path in written), "", "now:", *(f"  {step}" for step in steps)]
    output().print("\n".join(lines), markup=False, soft_wrap=True)


COMMAND = Command(
    new_dialect,
    (
        "outbox new-dialect my_db",
        "outbox new-dialect my_db --directory ~/src   # writes ~/src/outbox-my-db",
    ),
)
