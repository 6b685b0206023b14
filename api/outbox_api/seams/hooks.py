"""The hooks that a plugin implements, one for each seam.

A distribution registers a module under the entry-point group ``outbox``; the entry point's name is the
name that users write as ``driver:`` in YAML. The module implements the hook of the seam it serves::

    [project.entry-points.outbox]
    postgres = "outbox_postgres"

    # outbox_postgres/__init__.py
    @hookimpl
    def outbox_dialect() -> Driver[Dialect]:
        return Driver(options=PostgresOptions, create=PostgresDialect)

Modules are imported only when their name is asked for, and import their database driver later still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Annotated, Any, Generic, TypeVar

import pluggy

from outbox_api.seams.affinity import Affinity
from outbox_api.seams.dialect import Insert
from outbox_api.seams.elector import Elector
from outbox_api.seams.engine import Engine
from outbox_api.seams.listener import Listener
from outbox_api.seams.publisher import Publisher
from outbox_api.seams.transform import Transform

GROUP = "outbox"
"""The entry-point group, and the pluggy project name."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

Seam_co = TypeVar("Seam_co", covariant=True)


GIVEN = {"given": True}
"""The metadata of an option that core gives, and that users cannot write."""


def is_given(field: Field[Any]) -> bool:
    """Returns whether core gives the value of an option, and users cannot write it."""
    return bool(field.metadata.get("given"))


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks an option's unit, so that the configuration reader knows how it is written."""

    name: str


Duration = Annotated[float, Unit("seconds")]
"""An option that holds seconds; in YAML it is written like ``10ms``, ``1.5s`` or ``1m30s``."""


@dataclass(frozen=True, slots=True)
class Driver(Generic[Seam_co]):
    """What a plugin offers for a seam.

    Attributes:
        options: A frozen dataclass. Its fields are the keys users may write beside ``driver:`` (in
            camelCase, ``_id`` as ``ID``); a field with ``repr=False`` holds a secret. Instances are
            picklable. Fields with these names take their defaults from the settings that the seams of
            one outbox share: ``data_source``, ``password`` (a dialect's), ``table``, ``kafka``
            (client settings), ``leader_topic``, ``leader_group_id``, ``min_poll_interval``,
            ``heartbeat_timeout``, ``stop_after``.
            A field ``lease`` whose metadata is ``GIVEN`` receives a function that connects to the lease in
            the outbox's own database (``PortableDialect.lease``). A field ``origin`` whose metadata is
            ``GIVEN`` receives what the affinity says about it (:class:`outbox_api.Origin`, or ``None``). A
            field ``topics`` whose metadata is ``GIVEN`` receives the patterns of ``harvest.topics``, and a
            field ``dead_letter_topics`` the topics of ``failures.topic``. A field
            ``by_day`` whose metadata is ``GIVEN`` receives whether ``outbox init`` creates an outbox with
            a partition for each day. A field ``dataset`` whose metadata is ``GIVEN`` receives a function that
            returns how catalogs of data name the outbox (``PortableDialect.dataset``).
            A field ``identity`` of a transform: see :class:`outbox_api.Transform`.
            The first two of an election are ``None`` unless they are written: an elector is made again with
            those that follow from the outbox once the database has named it, and started then.
            A text with references to files (:class:`outbox_api.FileText`) reaches a field whose type names
            ``FileText``, or is ``Any``, and likewise the values of a mapping: the driver reads the files with
            :func:`outbox_api.present_text` at each connect. For every other field they are read once.
        create: Makes the seam's object from an instance of ``options``, without connecting.
        insert: For a dialect: how the stasher writes into the table of the given name, and the values of
            columns (name → value) that each row gets besides those of its record.
        require: Raises :class:`outbox_api.base.errors.PluginError`, with the cure, if the client of a service
            does not load. Who reads a configuration calls it, before threads import that client.
    """

    options: type[Any]
    create: Callable[[Any], Seam_co]
    insert: Callable[[str, Mapping[str, object]], Insert] | None = None
    require: Callable[[], None] | None = None


class Plugin:
    """The plugin behind the name of one driver.

    Args:
        hook: The hook that offers it, such as ``outbox_elector``.
        driver: The driver.
    """

    def __init__(self, hook: str, driver: Driver[Any]) -> None:
        setattr(self, hook, hookimpl(lambda: driver))


@hookspec
def outbox_dialect() -> Driver[Any]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers a dialect, for example ``Driver(PostgresOptions, PostgresDialect, insert)``."""


@hookspec
def outbox_elector() -> Driver[Elector]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers an elector, for example ``Driver(NeliOptions, NeliElector)``."""


@hookspec
def outbox_affinity() -> Driver[Affinity]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers an affinity, for example ``Driver(ClusterOptions, ClusterAffinity)``."""


@hookspec
def outbox_publisher() -> Driver[Publisher]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers a publisher, for example ``Driver(KafkaOptions, KafkaPublisher)``."""


@hookspec
def outbox_engine() -> Driver[Engine]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers an engine, for example ``Driver(SparkOptions, SparkEngine)``."""


@hookspec
def outbox_transform() -> Driver[Transform]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers a transform, for example ``Driver(RedactOptions, Redact)``."""


@hookspec
def outbox_listener() -> Driver[Listener]:  # type: ignore[empty-body]  # a hookspec has no body
    """Offers a listener, for example ``Driver(OpenLineageOptions, Lineage)``."""
