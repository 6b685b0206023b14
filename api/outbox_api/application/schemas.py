"""Serializers whose values name a schema in a schema registry, in Confluent's format.

They are those of confluent-kafka, which ``pip install confluent-kafka[avro]``, ``[json]`` and ``[protobuf]``
bring with what they need. A schema is registered, or looked up, when a topic's first record is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from outbox_api.base.errors import ConfigError
from outbox_api.base.payloads import Serializer, quotes, to_json, to_plain
from outbox_api.support.context_thread import ContextThread

TIMEOUT = 5.0
"""Seconds to wait for all that a registry is asked for a record, which a transaction may wait for."""

_Settings = Mapping[str, Any]
_Framing = Callable[[Any, SerializationContext], bytes]
_DEFAULTS: _Settings = {"subject.name.strategy": topic_subject_name_strategy}
_MISFITS = (SerializationError, TypeError, ValueError, LookupError, AttributeError)
_CURES = {
    401: "check basic.auth.user.info",
    403: "check what this user may do with the subject",
    404: "register it first, or leave auto.register.schemas on",
    409: "give new fields a default and leave the others as they are, or change the subject's compatibility",
    422: "correct it",
}
_SCHEMES = ("http", "https", "mock")
_SERVER_ERRORS = 500


class SchemaRegistry:
    """A schema registry, for the serializers of :meth:`outbox_api.Record.of`. Holds connections; thread-safe.

    A serializer raises an error in one sentence if the registry does not answer, if it refuses the schema, or
    if a model does not fit it. What it has registered, or looked up, it does not ask for again.

    Args:
        url: The registry's address.
        settings: Further settings of ``SchemaRegistryClient``, such as ``basic.auth.user.info``. By default
            it does not try again: the caller's transaction is open. For a record all takes ``timeout``
            seconds at most, by default :data:`TIMEOUT`, also if the registry answers byte by byte.

    Raises:
        ValueError: A setting cannot be used.
    """

    def __init__(self, url: str, settings: _Settings | None = None) -> None:
        conf = {"timeout": TIMEOUT, "max.retries": 0, **(settings or {}), "url": url}
        self._host = _hosts(url)
        self._client = SchemaRegistryClient.new_client(conf)
        self._timeout = conf["timeout"]
        self._asks_again = "cache.latest.ttl.sec" in conf

    def close(self) -> None:
        """Closes the connections; an application that ends needs not."""
        self._client.__exit__()  # type: ignore[no-untyped-call]  # it has no types

    def avro(self, schema: str, settings: _Settings | None = None) -> Serializer:
        """Returns a serializer for models of an Avro schema.

        Args:
            schema: The schema, as JSON.
            settings: Those of confluent-kafka's ``AvroSerializer``, such as ``auto.register.schemas``.

        Raises:
            ConfigError: The schema is not one.
        """
        from confluent_kafka.schema_registry.avro import AvroSerializer  # noqa: PLC0415 - needs its extra
        from fastavro import parse_schema  # noqa: PLC0415 - likewise
        from fastavro.validation import ValidationError, validate  # noqa: PLC0415 - likewise

        try:
            parsed = parse_schema(json.loads(schema))
        except Exception as error:
            raise ConfigError(f"the schema is not one of Avro: {type(error).__name__}: {error}") from error

        def misfit(model: Any, error: Exception) -> str:
            try:
                validate(to_plain(model), parsed)
            except ValidationError as invalid:
                wrong = invalid.errors
                return "; ".join(f"{each.field} is {_type(each.datum)}, not {each.schema}" for each in wrong)
            return type(error).__name__

        conf = {**_DEFAULTS, **(settings or {})}
        return self._guarded(AvroSerializer(self._client, schema, _plain, conf), misfit)

    def json(self, schema: str, settings: _Settings | None = None) -> Serializer:
        """Returns a serializer for models of a JSON schema, say ``json.dumps(Order.model_json_schema())``.

        Args:
            schema: The schema, with a title.
            settings: Those of confluent-kafka's ``JSONSerializer``.
        """
        from confluent_kafka.schema_registry.json_schema import JSONSerializer  # noqa: PLC0415 - needs its extra

        def misfit(_model: Any, error: Exception) -> str:
            invalid: Any = error.__context__
            if hasattr(invalid, "json_path"):
                # The path in the model may have keys of a mapping, which are values.
                where = "/".join(map(str, invalid.absolute_schema_path))
                return f"it violates {where}: {invalid.validator_value}"
            return type(error).__name__

        conf = {**_DEFAULTS, **(settings or {})}
        return self._guarded(JSONSerializer(schema, self._client, _jsonable, conf), misfit)

    def protobuf(self, message_type: Any, settings: _Settings | None = None) -> Serializer:
        """Returns a serializer for messages of a class that ``protoc`` has made.

        Args:
            message_type: The class.
            settings: Those of confluent-kafka's ``ProtobufSerializer``.
        """
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer  # noqa: PLC0415 - needs its extra

        conf = {**_DEFAULTS, "use.deprecated.format": False, **(settings or {})}
        return self._guarded(
            ProtobufSerializer(message_type, self._client, conf), lambda _, error: str(error)
        )

    def _guarded(self, frame: _Framing, misfit: Callable[[Any, Exception], str]) -> Serializer:
        """Bounds the time of a serializer; makes errors say what is wrong, without the model's values."""
        known = set[str]()  # topics of which the registry has told all

        def serialize(model: Any, topic: str) -> bytes:
            context = SerializationContext(topic, MessageField.VALUE)
            try:
                if topic in known:
                    return frame(model, context)
                framed = _within(self._timeout, lambda: frame(model, context))
            except SchemaRegistryError as error:
                why = self._refusal(error)
            except _MISFITS as error:
                why = f"it does not fit its schema: {misfit(model, error)}"
            except Exception as error:  # noqa: BLE001 - the client's HTTP library is not the same in each version
                said = "" if quotes(error) else str(error)
                said = said or type(error).__name__
                why = f"the schema registry at {self._host} does not answer: {said}"
            else:
                if not self._asks_again:
                    known.add(topic)
                return framed
            raise ValueError(why)

        return serialize

    def _refusal(self, error: SchemaRegistryError) -> str:
        status = error.http_status_code
        what = "has failed" if status >= _SERVER_ERRORS else "refuses the schema"
        cure = _CURES.get(status)
        said = f"the schema registry at {self._host} {what}: {error.error_message} (HTTP status {status})"
        return f"{said}; {cure}" if cure else said


def _hosts(url: str) -> str:
    """Returns hosts and ports of addresses, without users and passwords.

    Raises:
        ValueError: They are no addresses; it quotes nothing, since any part may be one of a password.
    """
    try:
        parts = [urlsplit(each.strip()) for each in url.split(",")]
        if all(
            each.scheme in _SCHEMES and each.hostname and (each.port or True) for each in parts
        ) and not any("@" in behind for each in parts for behind in each[2:]):
            return ",".join(each.netloc.rpartition("@")[2] for each in parts)
    except ValueError:
        pass
    raise ValueError(
        "the address of a schema registry is written as http://registry:8081, or as "
        "http://user:password@registry:8081 with what is neither letter nor digit in the password "
        "percent-encoded (a slash is %2F)"
    )


def _within(seconds: float | None, act: Callable[[], bytes]) -> bytes:
    """Returns what a function returns; waits for it no longer, whereas a client's time-out is for each read.

    Raises:
        TimeoutError: It takes longer; it goes on, and nobody gets its result.
    """
    result = Future[bytes]()

    def run() -> None:
        try:
            result.set_result(act())
        except BaseException as error:  # noqa: BLE001 - for the caller
            result.set_exception(error)

    ContextThread(target=run, name="schema-registry", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():
            raise
        raise TimeoutError("timed out") from None


def _type(value: object) -> str:
    return type(value).__name__


def _plain(model: Any, _context: SerializationContext) -> Any:
    return to_plain(model)


def _jsonable(model: Any, _context: SerializationContext) -> Any:
    return json.loads(to_json(model))
