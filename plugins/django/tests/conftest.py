"""A Django project for each test: an empty database, and settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import pymysql
import pytest
from django.apps import apps
from django.conf import settings
from django.db import connections
from outbox_django.outboxes import outbox_of
from psycopg.conninfo import conninfo_to_dict

DATABASES = ("sqlite", "postgres", "mariadb")
APPS = ("admin", "auth", "contenttypes", "sessions", "messages")

pymysql.install_as_MySQLdb()
if not settings.configured:  # before modules of tests import models
    settings.configure(
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in APPS), "outbox_django"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,
        SECRET_KEY="a test",
        USE_TZ=True,
    )
    django.setup()


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What ``DATABASES`` says of an empty database."""
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "shop.db"}
    if request.param == "postgres":
        named = conninfo_to_dict(request.getfixturevalue("postgres_dsn"))
        keys = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
        found = {name: str(named[key]) for name, key in keys.items() if key in named}
        return {"ENGINE": "django.db.backends.postgresql", **found}
    url = urlsplit(request.getfixturevalue("mariadb_dsn"))
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": url.path[1:],
        "HOST": url.hostname,
        "PORT": str(url.port),
        "USER": url.username,
        "PASSWORD": url.password or "",
    }


@pytest.fixture
def project(database: dict[str, Any], tmp_path: Path) -> Iterator[None]:
    """A project with that database, and a second one, ``other``, which has no outbox."""
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "other.db"}
    former = dict(connections.settings)
    connections.settings.update(connections.configure_settings({"default": database, "other": other}))
    if hasattr(connections._connections, "default"):
        del connections["default"]
    outbox_of.cache_clear()
    yield
    apps.get_model("contenttypes", "ContentType").objects.clear_cache()
    for alias in ("default", "other"):
        connections[alias].close()
        del connections[alias]
    connections.settings.clear()
    connections.settings.update(former)
    outbox_of.cache_clear()
