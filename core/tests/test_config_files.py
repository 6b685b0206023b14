"""``${file:PATH}`` in a configuration."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError, FileText, present_text
from outbox_core.config import configure, load, parse
from outbox_core.config.decode import decode
from outbox_core.config.document import Section, read
from outbox_core.config.environment import Environment
from outbox_core.config.problems import Problems

SECRET = "p@ss 'w\\ord"

YAML = """
harvest:
  outboxTable: ${file:table}
  dataSource: host=${HOST} password=${file:secrets/password} sslmode=disable
  baseKafkaConfig:
    sasl.password: "${file:secrets/password}"
    client.id: ${HOST}
  producerKafkaConfig: {ssl.key.pem: "${file:secrets/password}"}
  limits: {sendConcurrency: "${file:lanes}"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text(f"{SECRET}\n")
    (tmp_path / "table").write_text("box\n")
    (tmp_path / "lanes").write_text("3\n")
    (tmp_path / "outbox.yaml").write_text(YAML)
    return tmp_path


def test_secrets_keep_the_reference_and_other_settings_the_content(folder: Path):
    harvest = load(folder / "outbox.yaml", variables={"HOST": "db"}).harvest
    assert (harvest.outbox, harvest.limits.send_concurrency) == ("box", 3)
    source, file = harvest.dialect.options.data_source, folder / "secrets" / "password"
    assert source == FileText(("host=db password=", file, " sslmode=disable"))
    assert present_text(source) == f"host=db password={SECRET} sslmode=disable"
    publisher, elector = harvest.publisher.options.kafka, harvest.elector.options.kafka
    assert publisher == {
        "bootstrap.servers": "localhost:9092",
        "sasl.password": FileText((file,)),
        "client.id": "db",
        "ssl.key.pem": FileText((file,)),
    }
    assert elector["sasl.password"] == FileText((file,))
    assert "ssl.key.pem" not in elector
    file.write_text("new")
    assert present_text(publisher["sasl.password"]) == "new"
    assert SECRET.encode() not in pickle.dumps(harvest)
    assert SECRET not in repr(harvest)


def test_relative_paths_start_at_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    relative = load(Path(folder.name, "outbox.yaml"), variables={"HOST": "db"})
    monkeypatch.chdir("/")
    assert "password=p@ss" in present_text(relative.harvest.dialect.options.data_source)
    monkeypatch.chdir(folder)
    data = {"harvest": {"outboxTable": "${file:table}"}}
    assert configure(data).harvest.outbox == "box"
    assert parse("harvest: {outboxTable: '${file:table}'}").harvest.outbox == "box"
    monkeypatch.chdir("/")
    assert parse("harvest: {outboxTable: '${file:table}'}", folder=folder).harvest.outbox == "box"


def test_a_password_of_its_own_is_the_dialects_only(folder: Path):
    text = "harvest: {password: '${file:secrets/password}', dataSource: host=db, elector: etcd}"
    harvest = parse(text, folder=folder).harvest
    assert harvest.dialect.options.password == FileText((folder / "secrets" / "password",))
    assert harvest.elector.options.password is None
    with pytest.raises(ConfigError, match=r"harvest\.password: the dialect 'sqlite' has no password"):
        parse("harvest: {password: x, dialect: sqlite, dataSource: box.db}")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("${file:nowhere}", "f.yaml:2: harvest.dataSource: cannot read the file"),
        ("${file:binary}", "f.yaml:2: harvest.dataSource: the file"),
        ("${file:}", "f.yaml:2: harvest.dataSource: ${file:} names no file; write ${file:PATH}"),
        ("${file:secrets/password", "f.yaml:2: harvest.dataSource: expected ${NAME}, "),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_line(folder: Path, written: str, message: str):
    (folder / "binary").write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(ConfigError) as caught:
        parse(f"harvest:\n  dataSource: {written}", "f.yaml", folder=folder)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_what_a_file_contains_is_a_value_and_shown_in_no_error(folder: Path):
    (folder / "reference").write_text("$${HOST} ${HOST} ${file:table}")
    harvest = parse("harvest: {name: '${file:reference}', topics: ['$${file:x}']}", folder=folder).harvest
    assert harvest.name == "$${HOST} ${HOST} ${file:table}"
    assert harvest.topics == ("${file:x}",)
    with pytest.raises(ConfigError) as caught:
        parse("harvest: {limits: {queueTimeout: '${file:secrets/password}'}}", folder=folder)
    assert "expected a duration" in str(caught.value)
    assert SECRET not in str(caught.value)


@dataclass(frozen=True)
class Options:
    plain: str = ""
    either: str | FileText | None = field(default=None, repr=False)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict)
    mixed: Mapping[str, str | FileText] = field(default_factory=dict)


def decoded(text: str, folder: Path, defaults: Mapping[str, Any] | None = None) -> tuple[Any, list[str]]:
    problems = Problems()
    section = read(text, "f.yaml", Environment({}, folder), problems)
    assert isinstance(section, Section)
    made = decode(Options, section, "", problems, defaults)
    return made, [str(problem) for problem in problems.found]


def test_only_a_type_that_names_it_gets_a_reference(folder: Path):
    file, text = FileText((folder / "table",)), "${file:table}"
    written = f"{{plain: '{text}', either: '{text}', mapping: {{a: '{text}'}}, typed: {{a: '{text}'}}"
    made, problems = decoded(f"{written}, mixed: {{a: '{text}', b: c}}}}", folder)
    assert not problems
    assert made == Options("box", file, {"a": file}, {"a": "box"}, {"a": file, "b": "c"})
    given = {"plain": file, "either": file, "mapping": {"a": file}, "typed": {"a": file, "b": "c"}}
    made, problems = decoded("{}", folder, given)
    assert not problems
    assert made == Options("box", file, {"a": file}, {"a": "box", "b": "c"})


def test_a_wrong_type_is_told_as_if_there_were_text_only(folder: Path):
    assert decoded("either: {parts: [a]}\nmixed: {a: {b: c}}", folder)[1] == [
        "f.yaml:1: either: expected text, found a mapping",
        "f.yaml:2: mixed.a: expected text, found a mapping",
    ]
