"""What Django loads: the checks, and the tables where a project has no migrations."""

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate, pre_migrate, pre_save

from outbox_django.outboxes import LABEL, forget


class OutboxConfig(AppConfig):
    """The app."""

    name = LABEL
    verbose_name = "Outbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Registers what Django calls."""
        from outbox_django import checks, models, tables  # noqa: PLC0415 - not before the apps are there

        checks.register()
        pre_migrate.connect(tables.create_without_migrations, sender=self, dispatch_uid=LABEL)
        post_migrate.connect(tables.create_where_named_later, sender=self, dispatch_uid=LABEL)
        for model in self.get_models():
            pre_save.connect(models.refuse_to_save, sender=model, dispatch_uid=LABEL)
        setting_changed.connect(forget, dispatch_uid=LABEL)
