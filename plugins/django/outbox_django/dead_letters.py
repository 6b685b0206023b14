"""The admin of dead letters: shows them, and does what an operator asks for, as the journal notes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.template.response import TemplateResponse
from outbox_api import ConfigError, OutboxError
from outbox_core.operations import Arguments, Changed, Operator, Verb, perform
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable

from outbox_django.configuration import settings_of
from outbox_django.models import DeadLetter
from outbox_django.outboxes import aliases
from outbox_django.tables import name_of

_SHOWN = 250


def _action(verb: Verb) -> Any:
    """Returns an action that first says what it will do, then does it."""

    @admin.action(description=verb.about.label, permissions=["change"])
    def act(modeladmin: DeadLetterAdmin, request: Any, letters: Any) -> Any:
        if "sure" in request.POST:
            return modeladmin.perform(verb, request, letters.db)
        context = {
            **modeladmin.admin_site.each_context(request),
            "title": verb.about.summary,
            "verb": verb,
            "effect": verb.effect(),
            "letters": letters,
            "ids": ",".join(str(letter.pk) for letter in letters),  # one field: Django limits their number
            "checkbox": ACTION_CHECKBOX_NAME,
            "opts": modeladmin.opts,
        }
        return TemplateResponse(request, "outbox_django/confirm.html", context)

    act.__name__ = verb.value
    return act


def _require_shown(settings: HarvestSettings, shown: str) -> None:
    """Makes sure that an action finds the outbox whose letters are shown; tenants have one each."""
    with closing(settings.dialect.create().watch()) as view:
        if view.name != shown:
            raise ConfigError(f"these are letters of {shown}, and OUTBOX['CONFIG'] leads to {view.name}")


class DatabaseFilter(admin.SimpleListFilter):
    """Chooses the database, where several have an outbox."""

    title = parameter_name = "database"

    def lookups(self, *_: object) -> list[tuple[str, str]]:
        """Returns the choices; none where there is only one."""
        named = aliases()
        return [(alias, alias) for alias in named] if len(named) > 1 else []

    def queryset(self, _: object, queryset: Any) -> Any:
        """Returns all: ``DeadLetterAdmin.get_queryset`` has chosen."""
        return queryset


class DeadLetterAdmin(admin.ModelAdmin):
    """Lists dead letters, without values and headers, which may be confidential.

    Who may view them reads; who may change them retries, skips and redrives.
    """

    list_display = ("shown_key", "topic", "status", "attempts", "since", "reason")
    list_display_links = None
    list_filter = (DatabaseFilter, "status")
    search_fields = ("key", "topic")
    ordering = ("id",)
    actions = tuple(map(_action, (Verb.RETRY, Verb.SKIP, Verb.REDRIVE)))

    @admin.display(description="key", ordering="key")
    def shown_key(self, letter: DeadLetter) -> str:
        """Returns the beginning of the key; some databases keep its bytes."""
        key = (
            letter.key if isinstance(letter.key, str) else bytes(letter.key).decode(errors="backslashreplace")
        )
        return printable(key[:_SHOWN])

    def get_queryset(self, request: Any) -> Any:
        """Returns the dead letters of one outbox: of the chosen database, or the first."""
        chosen = request.GET.get(DatabaseFilter.parameter_name)
        alias = chosen if chosen in aliases() else aliases()[0]
        return DeadLetter.rows.using(alias).filter(name=name_of(alias))

    def has_add_permission(self, *_: object) -> bool:
        """Returns no: the harvester adds them."""
        return False

    def has_delete_permission(self, *_: object) -> bool:
        """Returns no: a verb of an operator deletes them."""
        return False

    def has_change_permission(self, request: Any, obj: DeadLetter | None = None) -> bool:
        """Returns whether the user may act; nobody edits a letter."""
        return obj is None and super().has_change_permission(request)

    def perform(self, verb: Verb, request: Any, alias: str) -> None:
        """Does what was confirmed, and says what came of it."""
        try:
            ids = [int(each) for each in request.POST.get("letters", "").split(",") if each]
            settings = settings_of(alias)
            _require_shown(settings, name_of(alias))
            operator = Operator(request.user.get_username(), "http", request.POST.get("reason", "").strip())
            done = perform(verb, settings, Arguments(ids), operator)
        except OutboxError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        assert isinstance(done, Changed)  # noqa: S101 - of these verbs
        gone = f"; {len(done.gone)} were not {verb.about.status} any more" if done.gone else ""
        self.message_user(request, f"{verb.about.done}: {len(done.changed)}{gone}", messages.SUCCESS)
        if done.unnoted:
            self.message_user(request, done.unnoted, messages.WARNING)
