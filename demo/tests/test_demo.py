"""The demonstration, as a user runs it: with real servers, the result of its audit, what it leaves behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from outbox_api import OutboxError
from outbox_audit import Ledger, Result, read_ledger
from outbox_core.cli import main
from outbox_core.config import configure, load
from outbox_demo import command
from outbox_demo.application import Application
from outbox_demo.display import open_display, print_outcome
from outbox_demo.harvester import Harvester
from outbox_demo.outcome import Outcome, Takeover
from outbox_demo.snapshot import Role, Snapshot
from rich.console import Console

FAULTLESS = Result(sent=10, delivered=10, foreign=0, overtaken=0, reappeared=0, stale=0, repeated=1)
ENOUGH = 20
"""Records that late transactions commit, and that others roll back, until both have had their effects."""
TAKEOVER = Takeover("harvester-1", "harvester-2", 6.0, 6.25)


def outcome(audit: Result = FAULTLESS, left: int = 0) -> Outcome:
    return Outcome(audit, TAKEOVER, rolled_back=3, late=2, mean_rate=100.4, highest_rate=300, left=left)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder that the account of an unprivileged PostgreSQL can reach as well."""
    path = Path(tempfile.mkdtemp(prefix="demo-test-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@contextmanager
def demonstration(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the program with all its temporary files in ``folder``, whose name marks all of its processes."""
    command = [sys.executable, "-m", "outbox_core", "demo", *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Returns what the program prints until a line that holds ``words``."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"ended with {process.wait()} before {words!r}:\n{''.join(lines)}")


def remains(folder: Path, seconds: float) -> list[str]:
    """Returns processes and files of a demonstration that are still there after some seconds at most."""
    deadline = time.monotonic() + seconds
    while True:
        listing = subprocess.run(
            ["ps", "axeww", "-o", "pid=,command="], capture_output=True, text=True, check=True
        )
        left = [
            line[:300] for line in listing.stdout.splitlines() if str(folder) in line and " ps " not in line
        ]
        left += [str(path) for path in folder.iterdir()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def check_for(harvester: Harvester, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        harvester.check()
        time.sleep(0.1)


def figure(text: str, name: str) -> str:
    found = re.search(rf"^{name} +(\S+)", text, re.MULTILINE)
    assert found, text
    return found[1].replace(",", "")


@pytest.mark.slow
@pytest.mark.spark
def test_it_ends_with_a_good_result_and_leaves_nothing(folder: Path) -> None:
    with demonstration(folder, "--seconds", "25", "--rate", "200") as process:
        text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    assert int(figure(text, "sent")) > 1000
    assert figure(text, "delivered") == figure(text, "sent")
    assert (figure(text, "lost"), figure(text, "out of order"), figure(text, "foreign")) == ("0", "0", "0")
    assert 1 < float(figure(text, "takeover")) < 60
    assert re.search(
        r"harvester-(\d) is killed with SIGKILL[^$]*harvester-(?!\1)\d leads with fence token \d", text
    )
    assert "GOOD: All " in text
    assert remains(folder, seconds=0) == []


@pytest.mark.slow
def test_planted_defects_make_the_result_bad(folder: Path) -> None:
    """One record is taken out of the outbox that nobody has read, and one put in that nobody committed."""
    with demonstration(folder, "--engine", "inline", "--seconds", "8") as process:
        text = read_until(process, "is killed with SIGKILL")
        (settings,) = folder.glob("outbox-demo-*/harvester-1.yaml")
        source = load(settings).harvest.dialect.options.data_source
        with psycopg.connect(source, autocommit=True) as connection:
            taken: list[tuple[str]] = []
            while not taken:
                time.sleep(0.01)
                with connection.transaction():
                    connection.execute("LOCK TABLE outbox_fence")  # nobody marks meanwhile
                    taken = connection.execute(
                        "DELETE FROM outbox WHERE id = "
                        "(SELECT max(id) FROM outbox WHERE leader_id IS NULL) RETURNING kafka_key"
                    ).fetchall()
            connection.execute(
                "INSERT INTO outbox "
                "(create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values) "
                "VALUES (now(), 'orders', 'order-1', '{Seq}', '{999999}')"
            )
        text += process.communicate(timeout=240)[0]
    assert process.returncode == 1, text
    assert (figure(text, "lost"), figure(text, "foreign"), figure(text, "out of order")) == ("1", "1", "0")
    assert (
        f"BAD: 1 of {int(figure(text, 'sent')):,} committed records never arrived: '{taken[0][0]}' " in text
    )
    assert "1 arrived without being committed: 'order-1' 999999." in text
    assert f"kept in {settings.parent}" in text
    assert {path.name for path in settings.parent.iterdir()} >= {
        "harvester-1.log",
        "harvester-2.log",
        "ledger",
    }
    shutil.rmtree(settings.parent)
    assert remains(folder, seconds=0) == []


@pytest.mark.parametrize(
    ("number", "code", "moment"),
    [
        (signal.SIGINT, 130, "Starting Kafka"),
        pytest.param(signal.SIGINT, 130, "is killed with SIGKILL", marks=pytest.mark.slow),
        (signal.SIGTERM, 143, "the application writes orders"),
        (signal.SIGKILL, -9, "the application writes orders"),
    ],
)
def test_it_leaves_nothing_however_it_is_stopped(
    folder: Path, number: signal.Signals, code: int, moment: str
) -> None:
    with demonstration(folder, "--engine", "inline") as process:
        read_until(process, moment)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == code
    # After SIGKILL the servers' guards need a moment.
    assert remains(folder, seconds=60 if number == signal.SIGKILL else 0) == []


@pytest.mark.slow
def test_kept_services_serve_until_they_are_stopped(folder: Path) -> None:
    with demonstration(folder, "--engine", "inline", "--seconds", "5", "--keep") as process:
        text = read_until(process, "outbox status")
        data_source = re.search(r"PostgreSQL +(host=.*)", text)
        assert data_source
        with psycopg.connect(data_source[1]) as connection:
            assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        settings = text.rstrip().rpartition(" ")[2]
        program = [sys.executable, "-m", "outbox_core", "status", "-f", settings]
        status = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120)
        former, present = map(int, re.findall(r"leads with fence token (\d+)", text))
        assert former < present
        assert f"fence token {present}" in status.stdout
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert remains(folder, seconds=0) == []


def test_a_bad_result_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (
        outcome(left=1),
        outcome(Result(10, 9, 0, 0, 0, 0, 0)),
        outcome(Result(10, 10, 1, 0, 0, 0, 0)),
    ):
        monkeypatch.setattr(command, "_run", lambda _, bad=bad: bad)
        with pytest.raises(SystemExit) as ended:
            main(["demo"])
        assert ended.value.code == 1
    monkeypatch.setattr(command, "_run", lambda _: outcome())
    with pytest.raises(SystemExit) as ended:
        main(["demo"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "from outbox_core.cli import app; app.entry_points = lambda **_: ()",
            "the command 'demo' is not installed",
        ),
        ("sys.modules['outbox_servers'] = None", "needs outbox_servers.services, which is missing"),
    ],
)
def test_without_the_extra_the_command_to_install_it_is_told(missing: str, message: str) -> None:
    program = f"import sys; {missing}; from outbox_core.cli import main; main(['demo'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert message in done.stderr
    assert "pip install outbox-demo" in done.stderr


def test_a_harvester_that_ends_by_itself_shows_its_log(tmp_path: Path) -> None:
    settings = tmp_path / "harvester-1.yaml"
    settings.write_text("harvest: {nonsense: 1}")
    harvester = Harvester("harvester-1", settings)
    try:
        with pytest.raises(OutboxError, match=r"(?s)ended by itself.*harvester-1\.log.*nonsense"):
            check_for(harvester, seconds=120)
    finally:
        harvester.close()


def test_the_application_knows_what_it_committed(postgres_dsn: str, tmp_path: Path) -> None:
    """With nobody harvesting, ledger and outbox must agree, and ids must follow each order's numbers."""
    settings = configure({"harvest": {"dataSource": postgres_dsn, "elector": "static"}}, variables={})
    settings.harvest.dialect.create().create()
    with Ledger(tmp_path / "ledger") as ledger:
        application = Application(postgres_dsn, ledger, rate=500, keys=40)
        application.start()
        deadline = time.monotonic() + 60
        while min(application.counts[what] for what in ("late", "rolled back")) < ENOUGH:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        application.stop()
        application.check()
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute(
            "SELECT kafka_key, kafka_header_values[1]::int FROM outbox ORDER BY id"
        ).fetchall()
        newest_first = connection.execute(
            "SELECT count(*) FROM (SELECT xmin::text::int AS t, max(xmin::text::int) OVER (ORDER BY id) AS m "
            "FROM outbox) AS x WHERE t < m"
        ).fetchone()
    counts: Counter[str] = application.counts
    assert sorted(read_ledger(tmp_path / "ledger")) == sorted(rows)
    assert counts["committed"] == len(rows)
    assert counts["late"] > 0
    assert counts["rolled back"] > 0
    assert newest_first != (0,), "no transaction overlapped another"
    numbers = defaultdict(list)
    for key, number in rows:
        numbers[key].append(number)
    assert all(each == sorted(each) for each in numbers.values())
    gaps = sum(each[-1] - len(each) for each in numbers.values())
    assert gaps > 0, "the numbers of what was rolled back are used again, so the audit could not tell it"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_shows_snapshot_and_outcome(terminal: bool) -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
    roles = {"harvester-1": Role.KILLED, "harvester-2": Role.LEADER}
    snapshot = Snapshot(1234, 5, 67, 1200, 34, 299.6, 2, roles)
    with open_display(console) as display:
        display.wait_for("starting")
        display.log("it has begun")
        display.show(snapshot)
    print_outcome(console, outcome())
    text = file.getvalue()
    for words in ("it has begun", "1,234", "1,200", "34", "300", "killed", "leads", "fence token 2"):
        assert words in text
    assert "6.2 s" in text
    assert "GOOD: All 10 records arrived" in text
    file.truncate(0)
    print_outcome(console, outcome(left=7))
    assert "BAD: 7 records were left in the outbox." in file.getvalue()
