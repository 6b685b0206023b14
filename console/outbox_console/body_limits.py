"""Bodies of requests: bounded, and of the type that is asked for."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from outbox_console.refusals import RefusedError

MAX_BODY = 64 * 1024
"""Bytes."""
_MOST_FIELDS = 2000

Model = TypeVar("Model", bound=BaseModel)


async def form(request: Request) -> dict[str, list[str]]:
    """Returns the fields of a form, each with its values in their order.

    Raises:
        RefusedError: The body is too long, of another type, or no form.
    """
    body = await _body(request, "application/x-www-form-urlencoded")
    try:
        return parse_qs(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise RefusedError(400, "the body is no form") from None


async def json(request: Request, kind: type[Model]) -> Model:
    """Returns a JSON body.

    Raises:
        RefusedError: The body is too long, of another type, or not what is described.
    """
    body = await _body(request, "application/json")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(map(str, first["loc"]))
        raise RefusedError(400, f"{where}: {first['msg']}" if where else first["msg"]) from None


async def _body(request: Request, kind: str) -> bytes:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != kind:
        raise RefusedError(415, f"send a body with Content-Type: {kind}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise RefusedError(
                    413, f"the body is longer than {MAX_BODY // 1024} KiB", {"Connection": "close"}
                )
    except ClientDisconnect:
        raise RefusedError(400, "the body has no end") from None
    return bytes(body)
