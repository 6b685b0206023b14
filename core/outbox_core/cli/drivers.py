"""``outbox drivers``: lists the drivers that are installed, and those that are not."""

import typer
from outbox_api.application.registry import DISTRIBUTIONS, Installed, installation, installed
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.cli.command import Command, ExitCode
from outbox_core.cli.invocation import JsonOption
from outbox_core.cli.terminal import output, print_json


def drivers(json: JsonOption = False) -> None:
    """List the drivers of every seam, installed or missing.

    Exits with 1 when an installed plugin cannot be used.
    """
    present = installed()
    names = [driver.name for driver in present]
    missing = {name: distribution for name, distribution in DISTRIBUTIONS.items() if name not in names}
    duplicates = {name for name in names if names.count(name) > 1}
    present = [_with_duplicate_problem(driver, duplicates) for driver in present]
    if json:
        print_json(
            {
                "installed": [
                    {
                        "name": driver.name,
                        "seams": [str(seam) for seam in driver.seams],
                        "distribution": driver.distribution,
                        "version": driver.version,
                        "problem": driver.problem or None,
                    }
                    for driver in present
                ],
                "missing": [
                    {"name": name, "distribution": distribution, "install": installation(name)}
                    for name, distribution in missing.items()
                ],
            }
        )
    else:
        output().print(_table(present, missing))
    if any(driver.problem for driver in present):
        raise typer.Exit(ExitCode.FAILED)


def _with_duplicate_problem(driver: Installed, duplicates: set[str]) -> Installed:
    if driver.name not in duplicates or driver.problem:
        return driver
    problem = "another distribution provides the same name; uninstall one"
    return Installed(driver.name, driver.distribution, driver.version, driver.seams, problem)


def _table(present: list[Installed], missing: dict[str, str]) -> Table:
    table = Table("driver", "seam", "distribution", "version", "", box=box.SIMPLE_HEAD)
    for driver in present:
        seams = ", ".join(driver.seams) or "?"
        state = Text(driver.problem, "red") if driver.problem else Text("installed", "green")
        table.add_row(driver.name, seams, driver.distribution, driver.version, state)
    for name, distribution in missing.items():
        table.add_row(
            Text(name, "dim"),
            "",
            Text(distribution, "dim"),
            "",
            Text(installation(name), "yellow"),
        )
    return table


COMMAND = Command(
    drivers,
    (
        "outbox drivers",
        "outbox drivers --json | jq '.installed[].name'",
    ),
)
