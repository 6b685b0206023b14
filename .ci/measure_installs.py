"""Installs each line of the table in docs/install.md into an empty environment, and works with it.

Fails if one is a fifth larger or smaller than the table says. With ``--note`` it writes the table.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from harvest_one_record import main as harvest_one_record

PAGE = Path(__file__).parents[1] / "docs" / "install.md"
ROW = re.compile(r"^\| `(outbox-[^`]*)` \|((?: \d+ MB, \d+ s \|)+)$", re.MULTILINE)
PYTHONS = ("3.11", "3.12", "3.13")
"""The columns."""


def measured(python: str, names: str, folder: Path) -> tuple[int, float]:
    """Returns megabytes, and seconds of a processor, which hardly depend on what else the machine does."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    begin = getrusage(RUSAGE_CHILDREN)
    install = f"'{folder}/bin/python' -m pip install --quiet {names}"
    subprocess.run(["bash", "-c", install], check=True, timeout=900)
    end = getrusage(RUSAGE_CHILDREN)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "check"], check=True)
    size = subprocess.run(["du", "-sm", folder / "lib"], capture_output=True, text=True, check=True)
    return int(size.stdout.split()[0]), end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def main(python: str, version: str, into: str, note: str = "") -> None:
    page = PAGE.read_text("utf-8")
    wrong = []
    for number, (names, cells) in enumerate(ROW.findall(page)):
        folder = Path(into, str(number))
        megabytes, seconds = measured(python, names, folder)
        print(f"   {megabytes} MB, {seconds:.0f} s: {names}", flush=True)
        if "outbox-postgres" in names and re.search("outbox-(core|harvester)", names):
            engine = "spark" if "outbox-core" in names else "inline"
            harvest_one_record(str(folder / "bin" / "outbox"), engine, page="outbox-console" in names)
        if version not in PYTHONS:
            continue
        told = cells.split("|")
        column = PYTHONS.index(version)
        if abs(int(told[column].split()[0]) - megabytes) > megabytes / 5:
            wrong.append(f"{names}: {megabytes} MB, {PAGE.name} says {told[column].strip()}")
        told[column] = f" {megabytes} MB, {seconds:.0f} s "
        page = page.replace(f"| `{names}` |{cells}", f"| `{names}` |{'|'.join(told)}")
    if note:
        PAGE.write_text(page, "utf-8")
    elif wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
