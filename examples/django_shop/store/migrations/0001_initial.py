"""The shop's tables."""

from django.db import migrations, models
from outbox_api.application.inbox import Inbox


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.RunSQL(list(Inbox("shipping").ddl()), "DROP TABLE outbox_inbox"),
        migrations.CreateModel(
            "Order",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.CharField(max_length=50)),
                ("goods", models.CharField(max_length=50)),
            ],
        ),
        migrations.CreateModel(
            "Shipment",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("order", models.IntegerField()),
                ("goods", models.CharField(max_length=50)),
            ],
        ),
    )
