"""Makes images of MySQL, MariaDB and PostgreSQL out of Debian's packages, under the official ones' names.

Where no registry can be reached, these stand in for the official images: the same servers, started by an
entrypoint that heeds the variables that testcontainers sets. All of them, or those that are named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from outbox_servers.containers import MARIADB_IMAGE, MYSQL_IMAGE, POSTGRES_IMAGE
from outbox_servers.services.cache import cache_root, cached_folder
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.mysql_binaries import MARIADB, MYSQL, embedded_installation

HERE = Path(__file__).parent
TRIXIE = Suite("Debian", "trixie")
ACCOUNT = 999
PULL_TIMEOUT = 60  # seconds
APPLETS = ("sh", "cat", "grep", "mkdir", "sleep")  # what the entrypoints use
LOADERS = {"amd64": "lib64", "arm64": "lib"}


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def shell() -> Path:
    def build(folder: Path) -> None:
        unpack_programs(["busybox-static"], TRIXIE, folder, re.compile("(?:usr/)?bin/busybox$"), log)

    return cached_folder(f"image-shell-{architecture()[0]}", build)


def postgres() -> Path:
    packages = ["postgresql-17", "postgresql-client-17", "tzdata"]
    wanted = re.compile(r"usr/(?:lib|share)/postgresql/17/|usr/share/zoneinfo/(?:Etc/)?UTC$")

    def build(folder: Path) -> None:
        unpack_programs(packages, TRIXIE, folder, wanted, log)

    return cached_folder(f"image-postgres-17-{architecture()[0]}", build)


def server(image: str) -> tuple[Path, str]:
    if image == POSTGRES_IMAGE:
        return postgres(), "postgres-entrypoint"
    product = MYSQL if image == MYSQL_IMAGE else MARIADB
    version = image.rpartition(":")[2]
    return embedded_installation(product, version, log).program.parents[2], "mysql-entrypoint"


def make(image: str) -> None:
    root, entrypoint = server(image)
    # Links to the cached files need their file system, and serve as well as copies.
    with tempfile.TemporaryDirectory(prefix="image-", dir=cache_root()) as work:
        folder = Path(work)
        folder.chmod(0o755)
        for part in (root, shell()):
            shutil.copytree(part, folder, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
        loader = Path(loader_command(root)[0])
        own = folder / LOADERS[architecture()[0]]
        for place in (own, folder / "bin", folder / "etc", folder / "tmp", folder / "var/lib/server"):
            place.mkdir(parents=True)
        (own / loader.name).symlink_to(f"/{loader.relative_to(root)}")
        for applet in APPLETS:
            (folder / "bin" / applet).symlink_to("/usr/bin/busybox")
        (folder / "etc/passwd").write_text(f"server:x:{ACCOUNT}:{ACCOUNT}::/var/lib/server:/bin/sh\n")
        (folder / "tmp").chmod(0o1777)
        os.chown(folder / "var/lib/server", ACCOUNT, ACCOUNT)
        script = folder / "entrypoint"
        script.write_bytes((HERE / entrypoint).read_bytes())
        script.chmod(0o755)
        command = ["docker", "import", "--message", "made of Debian's packages"]
        for change in (
            'ENTRYPOINT ["/entrypoint"]',
            f"USER {ACCOUNT}",
            "ENV PATH=/usr/sbin:/usr/bin:/bin:/usr/lib/postgresql/17/bin",
        ):
            command += ["--change", change]
        with subprocess.Popen(["tar", "-c", "-C", work, "."], stdout=subprocess.PIPE) as tar:
            subprocess.run([*command, "-", image], stdin=tar.stdout, check=True)
        if tar.returncode != 0:
            sys.exit(f"tar failed for {image}")


def has(image: str) -> bool:
    return (
        subprocess.run(["docker", "image", "inspect", image], check=False, capture_output=True).returncode
        == 0
    )


def pulled(image: str) -> bool:
    command = ["docker", "pull", "--quiet", image]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=PULL_TIMEOUT).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    registry = True
    for image in sys.argv[1:] or (MYSQL_IMAGE, MARIADB_IMAGE, POSTGRES_IMAGE):
        if has(image):
            continue
        registry = registry and pulled(image)  # One that did not answer is not asked again.
        if not registry:
            log(f"Making {image}")
            make(image)


if __name__ == "__main__":
    main()
