"""Secrets among Spark's settings: no process list, environment, log or page of Spark shows them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
from outbox_api import Level, OutboxError
from outbox_spark import jvm
from outbox_spark.check import check
from outbox_spark.jvm import Jvm, java_arguments, properties, write_privately
from outbox_spark.options import SparkOptions
from outbox_spark.security import with_defaults
from pyspark import SparkConf

MARK = "GREYHERON"
"""Part of every secret."""

PROGRAM = """
import json, logging, sys
from urllib.request import urlopen
from outbox_spark.application import Application
from outbox_spark.training import _nothing

logging.basicConfig(level=logging.DEBUG)
application = Application("secrets", "local[1]", json.loads(sys.stdin.readline()))
application.run("job", 1, _nothing)
context = application.context
page = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment"
found = {"page": urlopen(page).read().decode(), "defaults": context.getConf().get("spark.some.default")}
found["option"] = context._jvm.System.getProperty("shop.password")
found["setting"] = context._jsc.sc().conf().get("spark.shop.password")
application.stop()
print(json.dumps(found))
"""


class Watch:
    """Reads again and again what everybody, or every process of this user, can see of a process family."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.seen: set[str] = set()
        self.shown: set[str] = set()
        self._end = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(60)

    def _watch(self) -> None:
        while not self._end.wait(0.01):
            with suppress(psutil.Error):
                for each in [self._process, *self._process.children(recursive=True)]:
                    with suppress(psutil.Error, OSError):
                        self._look(each)

    def _look(self, process: psutil.Process) -> None:
        place = Path("/proc", str(process.pid))
        name = process.name()
        self.seen.add(name)
        for file in ("cmdline", "environ"):
            if MARK in (text := (place / file).read_bytes().decode(errors="replace")):
                self.shown.add(f"{file} of {name}: {text[max(0, text.index(MARK) - 80) :][:100]}")


@pytest.mark.spark
@pytest.mark.slow
def test_a_start_shows_no_secret_to_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.some.default   kept\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    secret = f'a={MARK} \\:#!"é😀'
    settings = {
        "spark.shop.password": secret,
        "spark.hadoop.fs.azure.account.key.shop": f"{MARK}2",
        "spark.driver.extraJavaOptions": f"-Dshop.password='{MARK} \"3' -Xss4m",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        watch = Watch(process.pid)
        said, log = process.communicate(json.dumps(settings) + "\n")
        watch.stop()
    assert process.returncode == 0, log
    assert {"java"} < watch.seen, "Spark's processes were seen"
    assert not watch.shown
    assert MARK not in log
    found = json.loads(said)
    assert MARK not in found.pop("page")
    assert found == {"defaults": "kept", "option": f'{MARK} "3', "setting": secret}
    left = [file for file in tmp_path.rglob("*") if file.is_file() and MARK.encode() in file.read_bytes()]
    assert not left


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs in the JVM's place, to be written; beside it, all temporary files."""
    monkeypatch.setattr(jvm, "_find_spark_home", lambda: str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "bin" / "spark-submit"
    file.parent.mkdir()
    file.touch(0o755)
    return file


def test_only_the_owner_can_read_a_file(tmp_path):
    umask = os.umask(0)
    try:
        write_privately(tmp_path / "settings", MARK)
    finally:
        os.umask(umask)
    assert (tmp_path / "settings").read_text() == MARK
    assert stat.S_IMODE((tmp_path / "settings").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_privately(tmp_path / "settings", MARK)


def test_a_jvm_that_does_not_start_leaves_nothing_and_its_last_words_show_no_secret(script, tmp_path):
    script.write_text(f"""#!/bin/sh
stat -L -c %a "$2" > {tmp_path}/mode
echo "$@" > {tmp_path}/arguments
echo "Picked up JAVA_TOOL_OPTIONS: -Dpassword=other{MARK}"
cat "$2"; exit 3
""")
    conf = SparkConf().setAll([("spark.my.secret", MARK), ("spark.my.token.on", "true")])
    with pytest.raises(OutboxError) as raised:
        Jvm(conf)
    assert (tmp_path / "mode").read_text() == "600\n"
    said = str(raised.value)
    assert "spark\\u002emy\\u002esecret=***" in said
    assert "spark\\u002emy\\u002etoken\\u002eon=true" in said
    assert "Picked up JAVA_TOOL_OPTIONS: ***" in said
    assert MARK not in said
    assert MARK not in (tmp_path / "arguments").read_text()
    assert not list((tmp_path / "tmp").iterdir())


def test_java_reads_back_what_the_files_say():
    assert properties({"spark.a b": "x=\ny😀"}) == ("spark\\u002ea\\u0020b=x\\u003d\\u000ay\\ud83d\\ude00\n")
    options = {
        "spark.driver.extraJavaOptions": r"""-Da='b "c' -Dd=e\\f""",
        "spark.driver.defaultJavaOptions": "-Xss4m",
    }
    assert java_arguments(options) == '"-Xss4m"\n"-Da=b \\"c"\n"-Dd=e\\\\f"\n'


@pytest.mark.parametrize("options", [f"-Dpassword={MARK} -Xmx2g", f"-Dpassword='{MARK}"])
def test_options_that_spark_would_quote_in_its_refusal_are_refused_before(options):
    with pytest.raises(OutboxError, match=r"spark\.driver\.extraJavaOptions") as raised:
        java_arguments({"spark.driver.extraJavaOptions": options})
    assert MARK not in str(raised.value)


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of Spark's own defaults."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("outbox_spark.jvm._new_enough", lambda home: home)
    return tmp_path / "spark-defaults.conf"


def found(master: str | None, **settings: str) -> dict[str, Level]:
    """Returns what `outbox check` finds about Spark's security."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    findings = check(SparkOptions(master=master, settings=given), groups=1)
    assert all(each.cure for each in findings if each.level is not Level.OK)
    return {each.subject: each.level for each in findings if each.subject.startswith(("spark.", "Spark sec"))}


ENCRYPTED = {"spark_network_crypto_enabled": "true", "spark_io_encryption_enabled": "true"}
SAFE = {"spark_authenticate": "true", **ENCRYPTED}
GOOD = {"Spark security": Level.OK}


@pytest.mark.parametrize("master", [None, "local[2]", "local-cluster[1,1,512]"])
def test_spark_on_this_machine_alone_needs_no_settings_but_must_not_be_open_to_its_users(defaults, master):
    defaults.write_text("spark.authenticate false")  # which the engine's own default overrules
    assert found(master) == GOOD
    assert found(master, spark_authenticate="true") == GOOD
    assert found(master, spark_authenticate="false") == {"spark.authenticate": Level.ERROR}


def test_a_cluster_without_security_is_an_error(defaults):
    missing = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
    assert found("spark://master:7077") == dict.fromkeys(missing, Level.ERROR)
    assert found("local", spark_master="yarn") == dict.fromkeys(missing, Level.ERROR)
    assert found("yarn", **(SAFE | {"spark_authenticate": "false"})) == {missing[0]: Level.ERROR}
    assert found("yarn", **(SAFE | {"spark_network_crypto_enabled": "no"})) == {missing[1]: Level.ERROR}
    assert found("yarn", **(SAFE | {"spark_io_encryption_enabled": ""})) == {missing[2]: Level.ERROR}


def test_only_some_masters_make_secrets(defaults):
    assert found("yarn", **SAFE) == found("k8s://https://host:443", **SAFE) == GOOD
    assert found("spark://master:7077", **SAFE) == {"spark.authenticate.secret": Level.ERROR}
    assert found("spark://master:7077", **SAFE, spark_authenticate_secret=MARK) == GOOD
    assert found("spark://master:7077", **SAFE, spark_authenticate_secret_file="/run/secret") == GOOD


def test_tls_between_spark_processes_counts_as_encryption_but_tls_of_its_pages_does_not(defaults):
    rest = {"spark_authenticate": "true", "spark_io_encryption_enabled": "true"}
    assert found("yarn", **rest, spark_ssl_rpc_enabled="true") == GOOD
    assert found("yarn", **rest, spark_ssl_enabled="true") == {"spark.network.crypto.enabled": Level.ERROR}


def test_what_sparks_defaults_say_counts_unless_the_harvest_says_otherwise(defaults):
    defaults.write_text("""# all applications
spark.authenticate          true
spark.authenticate.secret = something
  spark.network.crypto.enabled: TRUE
spark.io.encryption.enabled=true
""")
    assert found("spark://master:7077") == GOOD
    assert found("spark://master:7077", spark_authenticate="false") == {"spark.authenticate": Level.ERROR}
    assert with_defaults({"spark.a": "b"})["spark.authenticate.secret"] == "something"
