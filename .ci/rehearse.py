"""Uploads wheels to an index on this machine, and installs from it what the documents install.

Each line in an environment of its own, with uv: `pip check` is clean, `outbox --help` works. The harvester
without Spark delivers a record from SQLite.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from harvest_one_record import main as harvest_one_record
from harvest_one_record import sqlite

ROOT = Path(__file__).parents[1]
SLIM = "outbox-harvester outbox-sqlite"
SERVER, CHECKER = "pypiserver==2.4.2", "twine==7.0.0"


def lines() -> list[str]:
    """Returns what follows `pip install` in blocks of the documents: names of an index, some of them ours."""
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = {SLIM}
    for page in pages.stdout.split():
        text = (ROOT / page).read_text("utf-8")
        for block in re.findall(r"^ *```(?:sh|bash|console)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            for arguments in re.findall(r"pip install ((?:(?!   *#|\n).)+)", block):
                names = shlex.split(arguments)
                if any(name.startswith("outbox-") for name in names) and not re.search(
                    r"(^| )-|/", arguments
                ):
                    found.add(shlex.join(sorted(names)))
    return sorted(found)


@contextmanager
def index(uv: str, folder: str) -> Iterator[str]:
    """Starts an index, and yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = ["pypi-server", "run", "--interface", "127.0.0.1", "--port", str(port), "--disable-fallback"]
    begin = [uv, "tool", "run", "--quiet", "--from", SERVER, *serve, "-P", ".", "-a", ".", folder]
    process = subprocess.Popen(begin)
    try:
        give_up = time.monotonic() + 120
        while True:
            try:
                urlopen(f"http://127.0.0.1:{port}/").close()
                break
            except URLError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)


def install(uv: str, address: str, names: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python, outbox = Path(folder, "bin", "python"), Path(folder, "bin", "outbox")
        subprocess.run([uv, "venv", "--quiet", folder], check=True)
        to = ["--python", python, "--index", f"{address}simple/"]
        subprocess.run([uv, "pip", "install", "--quiet", *to, *shlex.split(names)], check=True)
        subprocess.run([uv, "pip", "check", "--quiet", "--python", python], check=True)
        if outbox.exists():
            subprocess.run([outbox, "--help"], check=True, stdout=subprocess.DEVNULL)
        print(f"   {names}", flush=True)
        if names == SLIM:
            harvest_one_record(str(outbox), "inline", database=sqlite)


def main(uv: str, wheels: str) -> None:
    built = sorted(map(str, Path(wheels).glob("*.whl")))
    subprocess.run([uv, "tool", "run", "--quiet", CHECKER, "check", "--strict", *built], check=True)
    with tempfile.TemporaryDirectory() as folder, index(uv, folder) as address:
        variables = {**os.environ, "UV_PUBLISH_USERNAME": "nobody", "UV_PUBLISH_PASSWORD": "none"}
        publish = [
            uv,
            "publish",
            "--quiet",
            "--trusted-publishing",
            "never",
            "--publish-url",
            address,
            *built,
        ]
        subprocess.run(publish, check=True, env=variables)
        if len(list(Path(folder).glob("*.whl"))) != len(built):
            sys.exit("the index has not all that was uploaded")
        for names in lines():
            install(uv, address, names)


if __name__ == "__main__":
    main(*sys.argv[1:])
