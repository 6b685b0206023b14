"""Which Grafana is used: the one that is named, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from outbox_servers.services import ServiceError
from outbox_servers.services.grafana import HOME_VARIABLE, Installation, find_installation


def home(folder: Path, *files: str) -> dict[str, str]:
    """Returns an environment that names a folder with these files."""
    for each in files:
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).touch(0o755)
    return {HOME_VARIABLE: str(folder)}


CONTENTS = ("conf/defaults.ini", "public/views/index.html")


@pytest.mark.parametrize("programs", [("bin/grafana", "bin/grafana-server"), ("bin/grafana",)])
def test_a_grafana_since_9_4_is_one_program_with_commands(tmp_path: Path, programs: tuple[str, ...]) -> None:
    found = find_installation(home(tmp_path, *CONTENTS, *programs))
    assert found == Installation(tmp_path, (str(tmp_path / "bin/grafana"), "server"))


def test_an_older_grafana_has_a_program_for_its_server(tmp_path: Path) -> None:
    found = find_installation(home(tmp_path, *CONTENTS, "bin/grafana-server"))
    assert found == Installation(tmp_path, (str(tmp_path / "bin/grafana-server"),))


def test_without_a_named_grafana_the_error_says_where_to_get_one() -> None:
    with pytest.raises(ServiceError, match=rf"grafana.com/grafana/download.*{HOME_VARIABLE}"):
        find_installation({})


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("bin/grafana",), "conf/defaults.ini"),
        (("bin/grafana", "conf/defaults.ini"), "public/views/index.html"),
        (CONTENTS, "bin/grafana nor bin/grafana-server"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, files: tuple[str, ...], missing: str) -> None:
    with pytest.raises(ServiceError, match=missing):
        find_installation(home(tmp_path, *files))
