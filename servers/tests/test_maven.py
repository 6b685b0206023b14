"""The real Ivy fetches jars from a local repository, without the internet."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_servers.lock import main as lock
from outbox_servers.services import ServiceError, find_java
from outbox_servers.services.jar_checksums import CHECKSUMS, checksums, read_checksums, write_checksums
from outbox_servers.services.kafka_home import kafka_home
from outbox_servers.services.maven import fetch_jars

pytestmark = pytest.mark.slow

_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>
<artifactId>{name}</artifactId><version>1.0</version><dependencies>{needs}</dependencies></project>"""
_NEED = """<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
<scope>{scope}</scope></dependency>"""

THING = [("org.example", "thing", "1.0")]


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository with a thing that needs a part, and a tool for its own tests only."""
    root = tmp_path / "repository"
    needs = {"thing": [("part", "compile"), ("tool", "test")], "part": [], "tool": []}
    for name, parts in needs.items():
        folder = root / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        text = "".join(_NEED.format(name=part, scope=scope) for part, scope in parts)
        (folder / f"{name}-1.0.pom").write_text(_POM.format(name=name, needs=text))
        (folder / f"{name}-1.0.jar").write_text(f"the jar of {name}")
    write_checksums(
        {f"{name}-1.0.jar": digest(f"the jar of {name}") for name in ("thing", "part")},
        tmp_path / "jars.sha256",
    )
    monkeypatch.setenv("OUTBOX_MAVEN_REPOSITORY", root.as_uri())
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def without_maven(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "mvn" else real(name, **more))


@pytest.mark.usefixtures("repository", "without_maven")
def test_an_artifact_comes_with_what_it_needs_at_run_time(tmp_path: Path) -> None:
    lines: list[str] = []
    fetch_jars(THING, tmp_path / "jars", find_java(), lines.append, tmp_path / "jars.sha256")
    jars = {jar.name: jar.read_text() for jar in (tmp_path / "jars").iterdir()}
    assert jars == {"thing-1.0.jar": "the jar of thing", "part-1.0.jar": "the jar of part"}
    assert sorted(lines) == ["Fetching part-1.0.jar", "Fetching thing-1.0.jar"]


@pytest.mark.usefixtures("repository", "without_maven")
def test_what_cannot_be_had_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="OUTBOX_MAVEN_REPOSITORY") as caught:
        fetch_jars([("org.example", "nothing", "1.0")], tmp_path / "jars", find_java())
    assert "org.example:nothing:1.0" in str(caught.value)
    assert "not found" in str(caught.value)


@pytest.mark.usefixtures("without_maven")
def test_a_jar_that_is_not_the_one_written_down_is_refused_and_deleted(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "org" / "example" / "part" / "1.0" / "part-1.0.jar").write_text("another jar")
    with pytest.raises(ServiceError, match=r"part-1\.0\.jar is not the file that it was") as caught:
        fetch_jars(THING, tmp_path / "jars", find_java(), checksums=tmp_path / "jars.sha256")
    assert digest("another jar") in str(caught.value)
    assert not (tmp_path / "jars").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("repository", "without_maven")
def test_a_jar_without_a_checksum_is_refused_until_it_is_written_down(tmp_path: Path) -> None:
    file = tmp_path / "other.sha256"
    with pytest.raises(ServiceError, match=r"no checksum of part-1\.0\.jar.*outbox_servers\.lock"):
        fetch_jars(THING, tmp_path / "jars", find_java(), checksums=file)
    assert not (tmp_path / "jars").exists()
    assert lock(["org.example:thing:1.0", "--file", str(file)]) == 0
    assert file.read_text() == (tmp_path / "jars.sha256").read_text()
    fetch_jars(THING, tmp_path / "jars", find_java(), checksums=file)


def test_the_jars_of_the_servers_here_are_those_written_down() -> None:
    """What other tests run may have been fetched before there were checksums."""
    home = kafka_home(find_java())
    found = checksums(home / "jars")
    assert len(found) > 10
    assert found.items() <= read_checksums(CHECKSUMS).items()


def test_maven_is_asked_if_ivy_fails(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in place of Maven shows Maven's arguments."""
    shutil.rmtree(repository / "org" / "example" / "part")
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nfor each do case "$each" in -DoutputDirectory=*) to="${each#*=}";; esac; done\n'
        'mkdir -p "$to"; cp "$3" "$to/pom.xml"; echo "Downloading from central: https://x/org/part-1.0.jar"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    lines: list[str] = []
    fetch_jars(THING, tmp_path / "jars", find_java(), lines.append, tmp_path / "jars.sha256")
    project = (tmp_path / "jars" / "pom.xml").read_text()
    assert "<artifactId>thing</artifactId><version>1.0</version>" in project
    assert [jar.name for jar in (tmp_path / "jars").iterdir()] == ["pom.xml"]
    assert lines[-1] == "Fetching part-1.0.jar"


@pytest.fixture
def private_authority(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The repository over HTTPS, signed by an authority that only the environment's bundle knows."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, directory=str(repository), **more)

        def log_message(self, *_arguments: object) -> None:
            """Logs nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_arguments: object) -> None:
            """A client that does not trust the certificate closes the connection, as expected."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("127.0.0.1", 0), Quiet) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OUTBOX_MAVEN_REPOSITORY", f"https://localhost:{server.server_address[1]}/")
        monkeypatch.setenv("NO_PROXY", "localhost")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield str(certificate)
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.usefixtures("private_authority", "without_maven")
def test_java_trusts_the_authorities_of_the_system(tmp_path: Path) -> None:
    lines: list[str] = []
    # One that is not from PyPI tries its own store first.
    installed = dataclasses.replace(find_java(), origin="PATH")
    fetch_jars(THING, tmp_path / "jars", installed, lines.append, tmp_path / "jars.sha256")
    assert sorted(jar.name for jar in (tmp_path / "jars").iterdir()) == ["part-1.0.jar", "thing-1.0.jar"]
    assert any("does not trust" in line for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("private_authority", "without_maven")
def test_an_unknown_authority_stays_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ServiceError, match="PKIX"):
        fetch_jars(THING, tmp_path / "jars", find_java())
