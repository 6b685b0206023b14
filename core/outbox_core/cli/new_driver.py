"""What the commands share that create the distribution of a driver."""

from pathlib import Path
from typing import Annotated

import typer
from outbox_sdk.registry import Seam

from outbox_core.cli.terminal import output, print_json
from outbox_core.scaffold import distribution, objection, write

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What users will write as 'driver:'.")]

DirectoryOption = Annotated[
    Path,
    typer.Option("--directory", "-d", metavar="DIR", show_default="here", help="Where the new folder goes."),
]


def create(seam: Seam, name: str, directory: Path, *, testing: str, json: bool) -> None:
    """Writes a distribution, and says how to go on.

    Args:
        seam: What the driver is to be.
        name: Its name.
        directory: Where its folder goes.
        testing: How to run its tests, and what they say.
        json: Whether to write JSON instead.
    """
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
