"""The command line without services: help, errors and their exit codes, drivers, logging."""

import json
import logging
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, LeadershipLost, PluginError
from outbox_api.application.registry import DISTRIBUTIONS, installation
from outbox_core.cli import main
from outbox_core.cli.app import COMMANDS, load_command
from outbox_core.cli.command import ExitCode, Group, exit_code
from outbox_core.cli.logs import Redacting, configure_logging
from outbox_core.settings.logs import LogLevel
from outbox_core.text.redaction import redact, redact_addresses

OUTBOX = str(Path(sys.executable).with_name("outbox"))


def call(*arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed program like a user, in a folder without a configuration file."""
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", **variables}
    return subprocess.run(
        [OUTBOX, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env=environment,
        check=False,
    )


def exits(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Runs the program in this process."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code, *capsys.readouterr()


def test_help_lists_the_commands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    code, out, _ = exits(capsys, "--help")
    assert code == 0
    listed = re.findall(r"^│ ([\w-]+) {2,}", out.partition("Commands")[2], re.MULTILINE)
    assert listed == list(COMMANDS)
    assert "<bool>" not in out
    for exit_code_ in ExitCode:
        assert re.search(rf"\b{exit_code_.value}: ", out)


PHRASES = [
    phrase
    for entry in map(load_command, COMMANDS)
    for phrase in [
        entry.name,
        *(f"{entry.name} {command.name}" for command in (entry.commands if isinstance(entry, Group) else ())),
    ]
]
"""The commands, the groups, and the commands of groups."""


@pytest.mark.parametrize("name", PHRASES)
def test_each_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = exits(capsys, *name.split(), "-h")
    assert code == 0
    assert "Examples" in out
    assert "<bool>" not in out  # a flag takes no value
    assert f"outbox {name}" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_sentence_of_the_help(name: str):
    command = load_command(name)
    text = command.text if isinstance(command, Group) else command.function.__doc__ or ""
    assert command.name == name
    assert COMMANDS[name] == " ".join(text.split("\n\n")[0].split())


def test_version(capsys: pytest.CaptureFixture[str]):
    code, out, _ = exits(capsys, "--version")
    assert code == 0
    assert re.fullmatch(r"outbox \d+\.\d+\.\d+\S* \(Python 3\.\d+\.\d+\S*\)\n", out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rnu"], "No such command 'rnu'"),
        (["run", "--fil", "x"], "No such option"),
        (["status", "--interval", "5"], "expected a duration such as 500ms, 5s or 1m30s"),
        (["status", "--interval", "0"], "expected at least 1ms"),
        (["status", "--interval", "1ns"], "expected at least 1ms"),
        (["status", "--interval", "876001h"], "expected a duration of 876000h (a hundred years) at most"),
        (["pump", "--interval", "9" * 20], "expected a duration of 876000h (a hundred years) at most"),
        (["health", "--patience", "1000000h"], "expected a duration of 876000h (a hundred years) at most"),
        (["pump", "--interval", "soon"], "expected a duration such as 500ms, 5s or 1m30s"),
        (["pump", "--keys", "0"], "greater than or equal to 1"),
        (["health", "--oldest", "5"], "expected a duration such as 500ms, 5s or 1m30s"),
        (["audit"], "Missing option '--ledger'"),
        (["parked", "retyr"], "No such command 'retyr'"),
        (["parked"], ""),
        (["fence"], ""),
        ([], ""),
    ],
)
def test_a_wrong_command_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    code, _, err = exits(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert told in re.sub(r"[\s│]+", " ", err)


def test_a_misspelt_key_is_one_clear_message(tmp_path: Path):
    (tmp_path / "outbox.yaml").write_text("harvest:\n  limits:\n    minPolInterval: 1s\n")
    done = call("run", folder=tmp_path)
    assert done.returncode == ExitCode.CONFIG
    assert done.stdout == ""
    assert done.stderr == (
        "error: outbox.yaml:3: harvest.limits.minPolInterval: unknown key; did you mean 'minPollInterval'?\n"
        "    see: outbox explain OUTBOX-CONFIG\n"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in which there is nothing."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_absent_plugin_is_one_clear_message(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "reaper.yaml").write_text("harvest:\n  elector: consul\n")
    code, _, err = exits(capsys, "check", "-f", "reaper.yaml")
    assert code == ExitCode.CONFIG
    assert err.startswith("error: reaper.yaml:2: harvest.elector.driver: no installed plugin provides")
    assert err.endswith(
        "; install the distribution that registers 'consul' in the entry-point group 'outbox'\n"
        "    see: outbox explain OUTBOX-PLUGIN\n"
    )


def test_without_spark_the_engine_that_is_there_is_the_first_cure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    others = [entry for entry in metadata.entry_points(group="outbox") if entry.name != "spark"]
    monkeypatch.setattr(
        "outbox_api.application.registry._entries", lambda _path: metadata.EntryPoints(others)
    )
    monkeypatch.syspath_prepend(str(folder))  # what is found is remembered for a path
    (folder / "outbox.yaml").write_text("harvest:\n  outboxTable: orders\n")
    code, _, err = exits(capsys, "check")
    assert code == ExitCode.CONFIG
    assert "no installed plugin provides the engine driver 'spark'" in err
    assert "; set 'engine: inline', or run: pip install outbox-spark\n" in err


@pytest.mark.parametrize("arguments", [["run", "-f", "no.yaml"], ["-f", "no.yaml", "run"], ["run"]])
@pytest.mark.usefixtures("folder")
def test_a_missing_file_is_one_clear_message(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("OUTBOX_FILE", "no.yaml")
    code, _, err = exits(capsys, *arguments)
    assert code == ExitCode.CONFIG
    told = "error: no.yaml: there is no such file; name one with -f, or in $OUTBOX_FILE\n"
    assert err == f"{told}    see: outbox explain OUTBOX-CONFIG\n"


def test_defaults_for_lack_of_a_file_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("OUTBOX_FILE", raising=False)
    monkeypatch.setattr("outbox_core.cli.run._harvest", lambda *_: None)
    told = "no outbox.yaml here and OUTBOX_FILE is not set: using the defaults, a PostgreSQL and a Kafka on"
    assert exits(capsys, "run")[2].startswith(told)
    (folder / "outbox.yaml").write_text("harvest: {}")
    assert told not in exits(capsys, "run")[2]


@pytest.mark.usefixtures("folder")
def test_debug_shows_where_an_error_comes_from(capsys: pytest.CaptureFixture[str]):
    code, _, err = exits(capsys, "--debug", "run", "-f", "no.yaml")
    assert code == ExitCode.CONFIG
    assert "error: no.yaml: there is no such file" in err
    assert "Traceback" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 78),
        (PluginError("x"), 78),
        (DriverError("x", retryable=True), 69),
        (DriverError("x", retryable=False), 1),
        (LeadershipLost("x"), 1),
        (AccessDenied("x"), 77),
    ],
)
def test_exit_codes(error: Exception, code: int):
    assert exit_code(error) == code


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a driver that is not installed to those that the repository provides."""
    monkeypatch.setattr("outbox_core.cli.drivers.DISTRIBUTIONS", {"not-here": "outbox-not-here"})


@pytest.mark.usefixtures("absent")
def test_drivers_tells_what_is_installed_and_what_is_missing(capsys: pytest.CaptureFixture[str]):
    code, out, _ = exits(capsys, "drivers")
    assert code == 0
    assert re.search(r"postgres +dialect +outbox-postgres +\S+ +installed", out)
    assert re.search(r"not-here +outbox-not-here +pip install outbox-not-here", out)


@pytest.mark.usefixtures("absent")
def test_drivers_as_json(capsys: pytest.CaptureFixture[str]):
    code, out, err = exits(capsys, "drivers", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    kafka = next(driver for driver in data["installed"] if driver["name"] == "kafka")
    assert (kafka["seams"], kafka["distribution"], kafka["problem"]) == (["publisher"], "outbox-kafka", None)
    (missing,) = data["missing"]
    assert missing["install"] == "pip install outbox-not-here"


def test_the_distribution_that_the_hint_names_has_the_driver():
    for name, distribution in DISTRIBUTIONS.items():
        assert installation(name) == f"pip install {distribution}"
        assert name in {entry.name for entry in metadata.distribution(distribution).entry_points}


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installs a distribution with a broken elector, with the files that pip would write."""
    (tmp_path / "outbox_broken_test.py").write_text(
        """
from dataclasses import dataclass
from outbox_api import Driver, hookimpl

@dataclass(frozen=True)
class Options:
    pass

def create(options):
    raise ZeroDivisionError("by zero")

@hookimpl
def outbox_elector():
    return Driver(Options, create)
"""
    )
    info = tmp_path / "outbox_broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[outbox]\nbroken = outbox_broken_test\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "outbox_broken_test", raising=False)
    return tmp_path


def test_drivers_tells_what_cannot_be_loaded(broken: Path, capsys: pytest.CaptureFixture[str]):
    (broken / "outbox_broken_test.py").write_text("import no_such_module\n")
    code, out, _ = exits(capsys, "drivers")
    assert code == ExitCode.FAILED
    assert "cannot be loaded: No module named 'no_such_module'" in out


def test_a_defect_is_told_as_such(broken: Path):
    (broken / "outbox.yaml").write_text("harvest: {elector: broken, engine: inline}\n")
    done = call("run", folder=broken, PYTHONPATH=str(broken))
    assert done.returncode == ExitCode.INTERNAL
    assert "error: ZeroDivisionError: by zero\n    see: outbox explain OUTBOX-DEFECT\n" in done.stderr
    assert "'outbox --debug …' shows the traceback" in done.stderr
    assert "Traceback" not in done.stderr
    done = call("--debug", "run", folder=broken, PYTHONPATH=str(broken))
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("host=x password=hunter2 dbname=y", "host=x password=*** dbname=y"),
        ("password = 'hunter 2' x", "password = *** x"),
        ("{'sasl.password': 'hunter2', 'a': 1}", "{'sasl.password': ***, 'a': 1}"),
        ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
        ("client_secret=hunter2;next", "client_secret=***;next"),
        ("Server=h;Pwd=hunter 2;Database=x", "Server=h;Pwd=***;Database=x"),
        ("Pwd={hunter; 2};Database=x", "Pwd=***;Database=x"),
        ("host=x password=hunter 2 dbname=y", "host=x password=*** dbname=y"),
        ("postgresql://me:hun/t@er2@db/x", "postgresql://me:***@db/x"),
        ("redis://:hunter2@db/x", "redis://:***@db/x"),
        ("fence token 7, password needed", "fence token 7, password needed"),
    ],
)
def test_passwords_are_taken_out_of_the_log(text: str, kept: str):
    assert redact(text) == kept
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s", (text,), None)
    assert Redacting("%(message)s").format(record) == kept


@pytest.mark.parametrize("part", ["k", "a.", "a:", "a://b:", "password=a ", "password={", "password=", " "])
def test_a_long_key_in_a_line_of_the_log_does_not_hold_up_the_process(part: str):
    text = part * (300_000 // len(part))
    assert redact(f"password=hunter2 {text}").startswith("password=***")  # a square of its length is minutes


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "no broker answers at u:hunter2@kafka-1:9092,kafka-2:9092",
            "no broker answers at u:***@kafka-1:9092,kafka-2:9092",
        ),
        ("zk://u:hunter2@host", "zk://u:***@host"),
        ("harvest.dialect.password: is not text", "harvest.dialect.password: is not text"),
        ("at 12:30: key orders:7 of shop@example.com", "at 12:30: key orders:7 of shop@example.com"),
    ],
)
def test_an_address_is_told_without_its_password(text: str, kept: str) -> None:
    assert redact_addresses(text) == kept


def test_lines_of_the_log_are_plain_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure_logging(LogLevel.DEBUG)
        logging.getLogger("outbox.x").debug("seen %d", 1)
        logging.getLogger("py4j").info("not seen")
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z DEBUG   outbox\.x seen 1\n", capsys.readouterr().err
        )
    finally:
        root.handlers[:] = before
        root.setLevel(level)
