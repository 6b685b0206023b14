"""The templates of the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from outbox_core.operations import Verb
from outbox_core.settings import Settings
from outbox_core.status.health import Code
from outbox_core.text.wording import clock, date_and_clock

from outbox_console.clients import Client, Means
from outbox_console.view.dead_letters import sendable, short, shown_key
from outbox_console.view.waiting import age, number, rate

_CURES = {
    Code.PARKED_KEYS: ("#parked", "the parked keys"),
    Code.DELIBERATE_TAKEOVER: ("#clusters", "the clusters"),
    Code.PAUSED: ("#paused", "the pauses"),
    Code.LONG_PAUSE: ("#paused", "the pauses"),
}
"""Problems that are mended on the page itself: where, and what is there."""


class Templates:
    """Writes HTML; everything that comes from elsewhere is escaped."""

    def __init__(self, settings: Settings) -> None:
        self._environment = Environment(
            loader=PackageLoader(__package__),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        http = settings.http
        filters = (clock, date_and_clock, age, rate, number, sendable, short, shown_key)
        self._environment.filters |= {each.__name__: each for each in filters}
        self._environment.globals |= {
            "process": settings.process.name,
            "zone": lambda: datetime.now().astimezone().tzname(),
            "several": settings.several,
            "cures": _CURES,
            "Verb": Verb,
            "help": http.help,
            "filled": lambda form, changes: {
                name: value for name, value in {**form, **changes}.items() if value
            },
            "prefix": http.prefix,  # of the paths of all addresses
            "proxy": http.proxy,
            "start": http.start,
            "has_operators": http.has_operators,
        }

    def write(self, name: str, **values: Any) -> str:
        """Returns a part of a page."""
        return self._environment.get_template(name).render(values)

    def page(self, name: str, client: Client | None, values: Mapping[str, Any]) -> str:
        """Returns a whole page."""
        is_proxied = client is not None and client.means is Means.PROXY
        return self.write(name, client=client, proxied=is_proxied, **values)
