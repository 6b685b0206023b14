"""docs/start.md with Docker: its commands print what it shows. `.ci/image` makes the images."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.debian import Suite, unpack_programs

from tests.quickstart import FILES, SETTLED, TOLD, follow

COMPOSE = "usr/libexec/docker/cli-plugins/docker-compose"


@pytest.mark.timeout(900)
def test_the_quick_start_prints_what_the_page_shows(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        unpack_programs(["docker-compose"], Suite("Debian", "trixie"), folder, re.compile(COMPOSE), print)

    plugins = tmp_path / "cli-plugins"
    plugins.mkdir()
    (plugins / "docker-compose").symlink_to(cached_folder("docker-compose-trixie", build) / COMPOSE)
    # A command in a container takes what is typed behind it for its own input.
    typed = 'while read -r each <&3; do eval "$each"; done 3<&0 </dev/null'
    status, kill = "docker compose exec shop outbox status", "docker compose kill harvester"
    settled, told = SETTLED.format(status), TOLD.format(status)
    replaced = {"make image": typed, "outbox status": told, kill: f"{settled}; {kill}"}
    environment = {"DOCKER_CONFIG": str(tmp_path), "BASH_ENV": str(FILES / "bashrc")}
    try:
        follow(replaced, environment, docker=True)
    finally:
        down = ["docker", "compose", "down", "--volumes"]
        subprocess.run(down, cwd=FILES, env={**os.environ, **environment}, check=True)
