"""What the claim check makes of records, what it refuses, and what a store that is away does: with files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import ConfigError, Level, Outgoing, PluginError, StoringTransform, TransformUnavailable
from outbox_claim_check import ClaimCheckOptions, ClaimError, create, fetch, store
from outbox_core.config import parse
from outbox_core.transforms.chain import Chain

LARGE = "ä" * 50
CONTENT = LARGE.encode()
NAME = hashlib.sha256(CONTENT).hexdigest()


def record(value: str | bytes | None = LARGE, **more: Any) -> Outgoing:
    return Outgoing(1, 0, "orders", "k", value, **more)


def claim_check(place: str | Path, **options: Any) -> Any:
    url = str(place) if "://" in str(place) else f"file://{place}"
    made = create(ClaimCheckOptions(url, **{"above": 99, **options}))
    assert isinstance(made, StoringTransform)
    return made


def passed(transform: Any, given: Outgoing) -> Outgoing:
    transform.store(given)
    [made] = transform.apply(given)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("value", [LARGE, CONTENT], ids=["text", "bytes"])
def test_a_large_value_is_stored_and_a_consumer_reads_it(tmp_path: Path, value: str | bytes):
    url = f"file://{tmp_path}"
    made = passed(claim_check(tmp_path), record(value, headers=(("kind", "paid"), ("outbox-claim", "old"))))
    assert made.headers == (("kind", "paid"), ("outbox-claim", f"{url}/{NAME}"))
    assert type(made.value) is type(value)
    assert json.loads(made.value or "") == {"claim": f"{url}/{NAME}", "bytes": 100}
    assert made._replace(value=value, headers=()) == record(value)
    assert [each.name for each in tmp_path.iterdir()] == [NAME]
    consumed = [(name, str(text).encode()) for name, text in made.headers]
    assert fetch(consumed, b"{}", url) == CONTENT
    assert fetch(consumed, b"{}", f"{url}/") == CONTENT


@pytest.mark.parametrize("value", [None, "", "small", b"x" * 99])
def test_other_values_stay_in_their_records(tmp_path: Path, value: str | bytes | None):
    given = record(value, headers=(("kind", "paid"),))
    assert passed(claim_check(tmp_path), given) == given
    assert not [*tmp_path.iterdir()]
    assert fetch(None, value if isinstance(value, bytes) else None, "s3://none") in (value, None)


@pytest.mark.parametrize(
    "value", [None, "", "small", b"small", f'{{"claim": "file://else/{NAME}", "bytes": 9}}']
)
def test_a_value_that_stays_loses_a_claim_that_an_application_has_passed_on(tmp_path: Path, value: Any):
    url = f"file://{tmp_path}"
    passed(claim_check(url), record())
    headers = (("kind", "paid"), ("outbox-claim", f"{url}/{NAME}"), ("outbox-claim", ""))
    made = passed(claim_check(url, above=999), record(value, headers=headers))
    assert made == record(value, headers=(("kind", "paid"),))


def test_a_reference_that_is_passed_on_stays_one(tmp_path: Path):
    for value in (LARGE, CONTENT):
        first = passed(claim_check(tmp_path), record(value))
        assert passed(claim_check(tmp_path, above=999), first) == first


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(full))
    with pytest.raises(TransformUnavailable, match="cannot be written to: OSError"):
        claim_check(tmp_path).store(record())
    assert not [*tmp_path.iterdir()]


def test_what_is_made_depends_on_the_record_alone_and_needs_no_store(tmp_path: Path):
    first = passed(claim_check(tmp_path), record())
    again = claim_check(tmp_path).apply(record())
    assert [first] == again
    place = tmp_path / NAME
    os.utime(place, (1, 1))
    assert passed(claim_check(tmp_path), record()) == first
    assert place.stat().st_mtime > 1, "a store deletes objects by the age of the last write"
    assert claim_check(tmp_path / "away").apply(record())[0].headers[0][1].endswith(f"/away/{NAME}")


def test_a_reference_leads_nowhere_else(tmp_path: Path):
    (tmp_path / "claims").mkdir()
    (tmp_path / NAME).write_bytes(CONTENT)
    url = f"file://{tmp_path}/claims"
    passed(claim_check(url), record())
    assert fetch([("outbox-claim", f"{url}/{NAME}")], None, url) == CONTENT
    for led in (
        "file:///etc/passwd",
        f"{url}/../{NAME}",
        f"{url}/%2e%2e/{NAME}",
        f"{url}-others/{NAME}",
        f"{url}//{NAME}",
        f"{url}/{NAME}?x",
        f"{url}/{NAME}\n",
        f"{url}/{NAME.upper()}",
        f"file://{tmp_path}/{NAME}",
        f"s3://bucket/{NAME}",
        f"simplecache::{url}/{NAME}",
        NAME,
        "",
    ):
        for text in (led, led.encode()):
            with pytest.raises(ClaimError, match="names no object of"):
                fetch([("outbox-claim", f"{url}/{NAME}"), ("outbox-claim", text)], None, url)
    with pytest.raises(ClaimError):
        fetch([("outbox-claim", None)], None, url)
    with pytest.raises(ClaimError):
        fetch([("outbox-claim", b"\xff")], None, url)


def test_a_content_that_was_changed_is_refused_and_one_that_is_gone_is_said(tmp_path: Path):
    url = f"file://{tmp_path}"
    passed(claim_check(url), record())
    (tmp_path / NAME).write_bytes(CONTENT[:-1])
    with pytest.raises(ClaimError, match="another content"):
        fetch([("outbox-claim", f"{url}/{NAME}")], None, url)
    (tmp_path / NAME).unlink()
    with pytest.raises(FileNotFoundError):
        fetch([("outbox-claim", f"{url}/{NAME}")], None, url)


def test_a_store_that_is_away_is_not_asked_at_once_again_and_then_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(store, "monotonic", lambda: now[0])
    away = tmp_path / "away"
    transform = claim_check(away)
    for _ in range(2):
        with pytest.raises(TransformUnavailable) as caught:
            transform.store(record())
        assert str(caught.value) == f"the store file://{away} cannot be written to: FileNotFoundError"
        away.mkdir(exist_ok=True)
    transform.store(record("small"))
    now[0] += store.PAUSE_SECONDS
    transform.store(record())
    assert (away / NAME).read_bytes() == CONTENT


def test_a_check_writes_an_empty_object(tmp_path: Path):
    folder = tmp_path / "claims"
    [finding] = claim_check(folder).check()
    assert (finding.level, finding.message) == (
        Level.ERROR,
        f"the store file://{folder} cannot be written to: FileNotFoundError",
    )
    folder.mkdir()
    [finding] = claim_check(folder).check()
    assert (finding.level, finding.message) == (Level.OK, f"file://{folder} takes objects")
    assert [each.read_bytes() for each in folder.iterdir()] == [b""]


def hanging_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has the next write hang: its file is a pipe that nobody reads."""
    pipe = folder / f"{NAME}.hangs"
    os.mkfifo(pipe)
    names = iter(["hangs"])
    monkeypatch.setattr(store, "uuid4", lambda: type("Id", (), {"hex": next(names, uuid4().hex)}))
    return pipe


def writing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "claim-check"]


def wait_for_writes() -> None:
    for thread in writing():
        thread.join(60)
    assert not writing()


def test_a_store_that_hangs_holds_nobody_up_for_longer_than_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pipe = hanging_part(tmp_path, monkeypatch)
    transform = claim_check(tmp_path, timeout=0.05)
    wait_for_writes()  # of other tests
    with pytest.raises(TransformUnavailable, match=r"has not answered for 0\.05 s"):
        transform.store(record())
    for limit, most in (("MOST_HANGING", 1), ("MOST_HANGING_BYTES", 2 * len(CONTENT) - 1)):
        with monkeypatch.context() as limited:
            limited.setattr(store, limit, most)
            for _ in range(3):  # as after each hand-over
                with pytest.raises(TransformUnavailable, match=f"{tmp_path} lets too many writes hang"):
                    claim_check(tmp_path).store(record())
    assert len(writing()) == 1, "it was not asked again"
    with pipe.open("rb") as reader:  # now it answers, with an error: no file can be synchronised with a pipe
        assert reader.read() == CONTENT
    wait_for_writes()
    create_again = claim_check(tmp_path)
    create_again.store(record())
    transform._store._options, transform._store._due = create_again._options, 0.0
    transform.store(record())
    assert (tmp_path / NAME).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("store: bucket/claims", "'store' is one URL"),
        ("store: 'simplecache::s3://bucket'", "'store' is one URL"),
        ("store: 's3://bucket/claims?sig=hush'", "'store' is one URL"),
        ("store: 's3:///'", "'store' is one URL"),
        ("store: sftp://me:hush@host/claims", "'store' has a password"),
        ("store: sftp://me:hu/hush@host/claims", "'store' has a password"),
        ("store: s3://bucket, above: -1", "'above' is a number"),
        ("store: s3://bucket, timeout: 0s", "more than nothing"),
        ("", "store: missing"),
        ("store: s3://bucket, storeOptions: hush", "expected a mapping"),
    ],
)
def test_options_that_cannot_be_are_refused_without_a_secret(options: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        parsed(options)
    assert problem in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "store", ["s3://b", "file:///mnt/a", "sftp://me@host:22/a@b", "abfs://box@account/a"]
)
def test_options_that_can_be_are_taken(store: str):
    assert parsed(f"store: '{store}'")[0].options.store == store


def parsed(options: str) -> Any:
    text = f"harvest:\n  dataSource: x\n  transform: [{{driver: claim-check, {options}}}]\n"
    return parse(text, "file", {"SECRET": "123456"}).harvest.transforms


def test_options_of_the_store_reach_it_with_their_types_and_secrets_are_read_at_each_opening(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    options = (
        "store: 'memory://claims', storeOptions: {anon: false, key: '123456', port: 22, "
        f"client_kwargs: {{endpoint_url: 'http://x', secret: '${{file:{secret}}}', verify: true}}, "
        "config_kwargs: {read_timeout: 5}, token: '${SECRET}'}"
    )
    [choice] = pickle.loads(pickle.dumps(parsed(options)))
    assert "123456" not in repr(choice)
    secret.write_text("second\n")
    assert store._present(choice.options.store_options) == {
        "anon": False, "key": "123456", "port": 22, "token": "123456",
        "client_kwargs": {"endpoint_url": "http://x", "secret": "second", "verify": True},
        "config_kwargs": {"read_timeout": 5},
    }  # fmt: skip


def test_a_chain_is_known_by_what_it_makes_and_not_by_secrets():
    def fingerprint(options: str) -> str:
        return Chain.of(parsed(options), lambda: "").fingerprint

    first = fingerprint("store: memory://claims, storeOptions: {x: '1'}")
    assert first == fingerprint("store: memory://claims, timeout: 3s, storeOptions: {x: '2'}")
    assert first != fingerprint("store: memory://claims, above: 5")
    assert first != fingerprint("store: memory://others")


def test_a_store_without_its_library_says_what_to_install():
    with pytest.raises(PluginError, match=r"a store of gs:// needs a library: .*gcsfs"):
        claim_check("gs://bucket")
    with pytest.raises(ConfigError, match="knows no store of x9://"):
        claim_check("x9://bucket")
