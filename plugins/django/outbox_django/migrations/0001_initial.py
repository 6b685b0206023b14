"""Creates the tables of an outbox: by the dialect's DDL for the database, and for Django by two models."""

from django.db import migrations, models

from outbox_django.outboxes import written
from outbox_django.tables import create, drop

ROW = [
    ("id", models.BigIntegerField(primary_key=True, serialize=False)),
    ("topic", models.TextField(db_column="kafka_topic")),
    ("key", models.TextField(db_column="kafka_key")),
]


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    operations = (
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(create, drop)],
            state_operations=[
                migrations.CreateModel(
                    name="StashedRecord",
                    fields=ROW,
                    options={
                        "db_table": written("TABLE"),
                        "default_permissions": (),
                        "base_manager_name": "objects",
                    },
                ),
                migrations.CreateModel(
                    name="DeadLetter",
                    fields=[
                        *ROW,
                        ("name", models.TextField()),
                        ("status", models.TextField()),
                        ("reason", models.TextField()),
                        ("attempts", models.BigIntegerField()),
                        ("since", models.DateTimeField()),
                    ],
                    options={
                        "db_table": "outbox_dead_letters",
                        "default_permissions": ("view", "change"),
                        "base_manager_name": "objects",
                    },
                ),
            ],
        ),
    )
