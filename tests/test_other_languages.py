"""The programs of docs/other-languages.md stash what the harvester reads whole, if their compiler is here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from outbox_api import Seam, find
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.java import find_java
from outbox_servers.services.maven import fetch_jars
from psycopg.conninfo import conninfo_to_dict

PAGE = Path(__file__).parents[1] / "docs" / "other-languages.md"
PINNED = Path(__file__).parent / "other_languages"
PROGRAMS = dict(
    re.findall(
        r"```\w+\n// (Shop\.java|shop\.go|shop\.ts|Shop\.cs)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
)
SECONDS = 600
"""For how long a compiler or an installation may take on a busy machine."""
JDBC = ("org.postgresql", "postgresql", "42.7.8")

Place = dict[str, str]
"""Host, port, user, password and dbname of a database."""


def run(folder: Path, *command: str, **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def url(place: Place) -> str:
    return "postgres://{user}:{password}@{host}:{port}/{dbname}".format_map(place)


def java(folder: Path, place: Place) -> None:
    java = find_java()
    jars = cached_folder(
        "jdbc-{}-{}".format(*JDBC[1:]),
        lambda into: fetch_jars([JDBC], into, java, checksums=PINNED / "jars.sha256"),
    )
    address = "jdbc:postgresql://{host}:{port}/{dbname}?user={user}&password={password}".format_map(place)
    run(folder, str(java.executable), "-Xmx256m", "-cp", f"{jars}/*", "Shop.java", DATABASE_URL=address)


def go(folder: Path, place: Place) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(PINNED / name, folder)
    run(folder, "go", "run", ".", DATABASE_URL=url(place))


def typescript(folder: Path, place: Place) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, folder)
    run(folder, "npm", "ci", "--no-audit", "--no-fund")
    run(
        folder,
        "npx",
        "tsc",
        "--strict",
        "--module",
        "commonjs",
        "--esModuleInterop",
        "--skipLibCheck",
        "shop.ts",
    )
    run(folder, "node", "shop.js", DATABASE_URL=url(place))


def csharp(folder: Path, place: Place) -> None:
    shutil.copy(PINNED / "shop.csproj", folder)
    address = "Host={host};Port={port};Username={user};Password={password};Database={dbname}".format_map(
        place
    )
    run(folder, "dotnet", "run", DATABASE_URL=address)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.parametrize(
    ("program", "compiler", "execute"),
    [
        ("Shop.java", "java", java),
        ("shop.go", "go", go),
        ("shop.ts", "npm", typescript),
        ("Shop.cs", "dotnet", csharp),
    ],
)
def test_the_program_stashes_what_the_harvester_reads(
    program: str, compiler: str, execute: Callable[[Path, Place], None], postgres_dsn: str, tmp_path: Path
) -> None:
    if compiler != "java" and shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} on this machine")
    kind = find(Seam.DIALECT, "postgres")
    dialect = kind.create(kind.options(data_source=postgres_dsn))
    dialect.create()
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE orders (id bigint)")
    (tmp_path / program).write_text(PROGRAMS[program], "utf-8")

    execute(tmp_path, {name: str(value) for name, value in conninfo_to_dict(postgres_dsn).items()})

    with closing(dialect.connect()) as table:
        marked = table.mark(table.enter(0, 1, table.bump(1, "test")), uuid4(), limit=10)
    assert [(row.topic, row.key, row.value, list(row.headers), row.fault) for row in marked] == [
        ("orders", "42", '{"paid": true}', [("source", "shop"), ("note", None)], None),
        ("carts", "42", None, [], None),
    ]
