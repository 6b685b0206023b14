"""``manage.py outbox`` and the admin: the project's settings are those of outbox."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client, override_settings
from django.urls import path
from outbox_api import ConfigError, DeadLetterStatus, Dialect, Poison, Record, Seam, Stasher, find
from outbox_core import operations
from outbox_django import stash_many
from outbox_django.addresses import address_of
from outbox_django.configuration import load, settings_of

pytestmark = pytest.mark.usefixtures("project")

KEYS = ("a", "é", "c")
MIDDLEWARE = ("sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message")
PROCESSORS = ("template.context_processors.request", "contrib.auth.context_processors.auth")
PAGE = "/admin/outbox_django/deadletter/"


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        call_command("outbox", *arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def park(keys: Sequence[str] = KEYS) -> None:
    """Parks all keys, with two rows each."""
    with transaction.atomic():
        stash_many([Record("orders", key, f"{key} {turn}") for turn in (0, 1) for key in keys])
    park_in(settings_of("default").dialect.create(), keys)


def park_in(dialect: Dialect, keys: Sequence[str]) -> None:
    with closing(dialect.connect()) as table:
        fence, leader = table.enter(0, 1, table.bump(1, "leader")), uuid4()
        marked = table.mark(fence, leader, 10_000)
        heads = [Poison(each.id, "too large", 5) for each in marked[: len(keys)]]
        assert table.park(fence, leader, heads, [each.id for each in marked]).rows == len(keys)


def test_commands_work_on_the_projects_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call_command("migrate", "outbox_django", verbosity=0)
    park()
    harvest = {"engine": "inline", "elector": "static"}
    with override_settings(OUTBOX={"CONFIG": {"harvest": harvest}}):
        assert call("parked", "list", "--json") == 0
        assert [each["key"] for each in json.loads(capsys.readouterr().out)["letters"]] == [*KEYS]
        assert load().harvest.engine.driver == "inline"
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps({"harvest": {**harvest, "name": "of the file"}}))
    with override_settings(OUTBOX={"CONFIG": str(file)}):
        assert call("status", "--json") == 0
        assert json.loads(capsys.readouterr().out)["backlog"]["records"] == 6
        assert settings_of("default").name == "of the file"
    assert call("parked", "list", "--outbox", "nowhere") != 0


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_file_names_no_other_table_than_records_are_stashed_into(tmp_path: Path) -> None:
    file = tmp_path / "outbox.yaml"
    for written, told in (
        ({"harvest": {"outboxTable": "sales"}}, "is 'sales', and records are stashed into"),
        ({"outboxes": {"tenants": {"outboxTable": "tenant_*.outbox"}}}, "alias of a database: default"),
    ):
        file.write_text(json.dumps(written))
        with pytest.raises(ConfigError, match=told):
            load(file)
    file.write_text(json.dumps({"harvest": {"outboxTable": "public.outbox"}}))
    assert load(file).harvest.outbox == "public.outbox"
    file.write_text(json.dumps({"outboxes": {"default": {"outboxTable": "tenant_*.outbox"}}}))
    assert [each.pattern for each in load(file).templates] == ["tenant_*.outbox"]
    with override_settings(OUTBOX={"CONFIG": str(file)}), pytest.raises(ConfigError, match="by a pattern"):
        settings_of("default")


def test_several_databases_are_several_outboxes(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(OUTBOX={"DATABASES": ["default", "other"], "TABLE": "sales"}):
        for alias in ("default", "other"):
            call_command("migrate", "outbox_django", database=alias, verbosity=0)
        assert [each.label for each in load().outboxes] == ["default", "other"]
        assert settings_of("other").dialect.driver == "sqlite"
        assert call("status", "--outbox", "other", "--json") == 0
        assert call("init", "--dry-run") == 0
    assert "sales" in capsys.readouterr().out


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("engine", "written", "expected"),
    [
        (
            "postgresql",
            {"NAME": "my shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
            {"data_source": "sslmode=require dbname='my shop' host=db"},
        ),
        (
            "mysql",
            {"NAME": "shop", "HOST": "::1", "PORT": 3307, "OPTIONS": {"ssl": {"ca": "/ca.pem"}}},
            {"data_source": "mysql://a%40b@[::1]:3307/shop?ssl-ca=%2Fca.pem"},
        ),
        (
            "mysql",
            {"NAME": "shop", "HOST": "/run/sock"},
            {"data_source": "mysql://a%40b@/shop?unix-socket=%2Frun%2Fsock"},
        ),
    ],
)
def test_addresses_are_read_as_django_reads_them(
    engine: str, written: dict[str, Any], expected: dict[str, str]
) -> None:
    secret = "a ${PATH} 'quoted' $${x} p@ss/word"
    whole = {"ENGINE": f"django.db.backends.{engine}", "PASSWORD": secret, **written}
    if engine == "mysql":
        whole["USER"] = "a@b"
    connections.settings["third"] = connections.configure_settings({"default": {}, "third": whole})["third"]
    with override_settings(OUTBOX={"DATABASES": ["third"]}):
        assert address_of("third") == {**expected, "password": secret}
        options = load().harvest.dialect.options
        assert (options.password, options.data_source) == (secret, expected["data_source"])
        assert secret not in repr(load())
    del connections["third"]


@pytest.fixture
def site(project: None) -> Iterator[None]:
    """A project with an admin, whose keys are parked."""
    call_command("migrate", verbosity=0)
    park()
    templates = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [f"django.{each}" for each in PROCESSORS] + MESSAGES},
    }
    with override_settings(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=(path("admin/", admin.site.urls),),
        MIDDLEWARE=[f"django.contrib.{each}Middleware" for each in MIDDLEWARE],
        TEMPLATES=[templates],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        STATIC_URL="static/",
    ):
        yield


MESSAGES = ["django.contrib.messages.context_processors.messages"]


def login(*permissions: str) -> Client:
    user = User.objects.create_user("-".join(("ada", *permissions)), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def letters(status: DeadLetterStatus) -> dict[str, int]:
    found = operations.letters(settings_of("default"), status)
    return {each.record.key: each.record.id for each in found}


def confirmed(page: str) -> dict[str, str]:
    """Returns what the page sends that asks whether one is sure."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


@pytest.mark.usefixtures("site")
def test_letters_of_another_outbox_of_the_schema_stay_out_of_sight() -> None:
    default = settings_of("default").dialect
    theirs = find(Seam.DIALECT, default.driver).create(replace(default.options, table="sales"))
    theirs.create()
    with closing(theirs.stash_connection()) as connection:
        stasher = Stasher("sales", default.driver)
        stasher.stash_many(connection, [Record("bills", f"theirs-{number}") for number in range(3)])
        connection.commit()
    park_in(theirs, ["theirs-0", "theirs-1", "theirs-2"])
    ours, client = letters(DeadLetterStatus.PARKED), login("view_deadletter", "change_deadletter")
    page = client.get(PAGE).content.decode()
    assert all(f">{key}<" in page for key in KEYS)
    assert "theirs" not in page
    asked = client.post(PAGE, {"action": "skip", "_selected_action": "0", "select_across": "1"})
    assert confirmed(asked.content.decode())["letters"] == ",".join(map(str, sorted(ours.values())))
    call_command("migrate", "outbox_django", "zero", verbosity=0)
    with closing(theirs.dead_letters(read_only=True)) as left, closing(theirs.watch()) as view:
        assert len(left.find(status=DeadLetterStatus.PARKED)) == 3
        assert len(view.lane_statuses()) == 1
    call_command("migrate", "outbox_django", verbosity=0)
    assert client.get(PAGE).content.decode().count("too large") == 0
    assert settings_of("default").dialect.create().create() == []


@pytest.mark.usefixtures("site")
def test_of_several_databases_the_admin_offers_each() -> None:
    client = login("view_deadletter")

    def shown(**query: str) -> str:
        return str(client.get(PAGE, query).content.decode())

    assert "?database=" not in shown()
    with override_settings(OUTBOX={"DATABASES": ["default", "other"]}):
        call_command("migrate", "outbox_django", database="other", verbosity=0)
        assert "?database=other" in shown()
        assert ["too large" in shown(database=alias) for alias in ("default", "other")] == [True, False]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_any_number_of_letters_is_chosen_at_once() -> None:
    park([f"k{number}" for number in range(1500)])
    client = login("view_deadletter", "change_deadletter")
    asked = client.post(PAGE, {"action": "skip", "_selected_action": "0", "select_across": "1"})
    sure = confirmed(asked.content.decode())
    assert "Skipped: 1503" in client.post(PAGE, {**sure, "action": "skip"}, follow=True).content.decode()


@pytest.mark.usefixtures("site")
def test_who_may_retries_and_skips_in_the_admin() -> None:
    parked = letters(DeadLetterStatus.PARKED)
    client = login("view_deadletter", "change_deadletter")
    page = client.get(PAGE).content.decode()
    assert all(f">{key}<" in page for key in KEYS)
    assert "c 0" not in page
    assert ">é<" in client.get(PAGE, {"q": "é"}).content.decode()
    wanted = {"action": "skip", "_selected_action": [parked["a"], parked["é"]]}
    asked = client.post(PAGE, wanted).content.decode()
    assert "consumers see a gap" in asked
    assert letters(DeadLetterStatus.PARKED) == parked  # nothing is done yet
    wanted = {**confirmed(asked), "action": "skip"}
    done = client.post(PAGE, {**wanted, "reason": "a test"}, follow=True).content.decode()
    assert "Skipped: 2" in done
    assert [*letters(DeadLetterStatus.SKIPPED)] == ["a", "é"]
    again = client.post(PAGE, wanted, follow=True).content.decode()
    assert "Skipped: 0; 2 were not parked any more" in again
    client.post(PAGE, {**wanted, "action": "retry", "letters": str(parked["c"])})
    assert letters(DeadLetterStatus.PARKED) == {}
    noted = operations.entries(settings_of("default"))
    assert [(each.action.verb, each.action.operator) for each in noted] == [
        (verb, "ada-view_deadletter-change_deadletter") for verb in ("retry", "skip", "skip")
    ]
    assert noted[-1].action.reason == "a test"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_who_may_not_only_reads_or_nothing() -> None:
    parked = letters(DeadLetterStatus.PARKED)
    chosen = ",".join(map(str, parked.values()))
    wanted = {"action": "skip", "_selected_action": ["0"], "letters": chosen, "sure": "yes"}
    reader, editor = login("view_deadletter"), login("change_deadletter")
    assert reader.get(PAGE).status_code == 200
    reader.post(PAGE, wanted)
    assert login().get(PAGE).status_code == 403
    one = f"{PAGE}{parked['a']}/change/"
    editor.post(one, {"status": "skipped", "key": "x", "topic": "x", "reason": "x", "attempts": "1"})
    assert letters(DeadLetterStatus.PARKED) == parked
    with override_settings(OUTBOX={"CONFIG": {"harvest": {"nonsense": 1}}}):
        assert "nonsense" in editor.post(PAGE, wanted, follow=True).content.decode()
