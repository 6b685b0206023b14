"""An outbox in a Django project; ``outbox_django`` in ``INSTALLED_APPS``."""

from outbox_django.stashing import stash, stash_many

__all__ = ["stash", "stash_many"]
