"""Adds the dead letters to the admin where ``outbox-harvester`` is installed."""

from importlib.util import find_spec

from django.contrib import admin

from outbox_django.models import DeadLetter

if find_spec("outbox_core"):
    from outbox_django.dead_letters import DeadLetterAdmin

    admin.site.register(DeadLetter, DeadLetterAdmin)
