"""Runs the commands of README.md and docs/install.md as they stand, each installation in a new environment.

Left out is `make test` alone, which continuous integration runs beside this.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

from harvest_one_record import main as harvest_one_record
from outbox_servers.services import KafkaBroker, PostgresServer
from psycopg.conninfo import conninfo_to_dict

CLONE = Path(sys.argv[1])
ELSEWHERE = {"make test"}
UNTIL_INTERRUPTED = {"outbox run", "outbox status --watch"}
FINDS_SOMETHING = {"outbox check"}
"""Ends with an exit code of its own before the table is there."""


def blocks(page: str, language: str) -> list[str]:
    text = (CLONE / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def lines(block: str) -> list[str]:
    """Returns the commands of a block without the comments behind them."""
    found = [re.sub(r"(^| {2,})# .*$", "", line).strip() for line in block.splitlines()]
    return [line for line in found if line]


def environment(folder: Path) -> dict[str, str]:
    """Returns the variables of a shell in which a new, empty environment is active."""
    venv.create(folder, with_pip=True)
    return {**os.environ, "VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}


def run(commands: list[str], variables: dict[str, str]) -> None:
    for command in commands:
        print(f"   $ {command}", flush=True)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=CLONE,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nended with {done.returncode}")


def install() -> None:
    """Runs what docs/install.md says; what it installs delivers a record."""
    in_the_clone, own, copied = blocks("docs/install.md", "sh")
    run(lines(in_the_clone), dict(os.environ))
    first, *others = own.split("\n\n")
    for number, each in enumerate([*others, copied]):
        folder = CLONE.parent / f"env-{number}"
        variables = environment(folder)
        before = lines(first) if each is not copied else []
        run([*(line for line in before if number == 0 or line != "make dist"), *lines(each)], variables)
        if (folder / "bin" / "outbox").exists() and "postgres" in each:
            engine = "spark" if re.search("outbox[-_]core", each) else "inline"
            harvest_one_record(str(folder / "bin" / "outbox"), engine)


def readme() -> None:
    """Runs what README.md says, with a database and a broker at ports of their own."""
    see, installation, use = blocks("README.md", "sh")
    run([line for line in lines(see) if line not in ELSEWHERE], dict(os.environ))
    variables = environment(CLONE.parent / "env-readme")
    run(lines(installation), variables)
    with PostgresServer() as postgres, KafkaBroker() as kafka:
        (settings,) = blocks("README.md", "yaml")
        address = conninfo_to_dict(postgres.dsn)
        settings = settings.replace("port=5432", f"port={address['port']}")
        (CLONE / "outbox.yaml").write_text(settings.replace("localhost:9092", kafka.bootstrap))
        variables["PGPASSWORD"] = str(address["password"])
        begun: list[subprocess.Popen[str]] = []
        for command in lines(use):
            if command in UNTIL_INTERRUPTED:
                print(f"   $ {command} &", flush=True)
                begun.append(subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=CLONE, env=variables))
            elif command in FINDS_SOMETHING:
                run([f"{command} || [ $? = 1 ]"], variables)
            else:
                run([command], variables)
        run(["until outbox health; do sleep 1; done"], variables)  # there is a leader
        for process in begun:
            process.send_signal(signal.SIGINT)
            if process.wait(60):
                sys.exit(f"{process.args} ended with {process.returncode}")


install()
readme()
