"""A shop on FastAPI and SQLAlchemy, asynchronous: stores an order, and stashes its event, in one transaction.

    DATABASE_URL=postgresql+psycopg://postgres@localhost/shop uvicorn api:app

See README.md for what to install.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from opentelemetry import trace
from opentelemetry.propagate import extract
from outbox_api import AsyncStasher, Record
from outbox_api.application.sqlalchemy import outbox_table
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

engine = create_async_engine(os.environ["DATABASE_URL"])
stasher = AsyncStasher()
tracer = trace.get_tracer("shop")


class Base(DeclarativeBase):
    """The application's own tables, the outbox among them."""


outbox_table(Base.metadata)


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    goods: Mapped[str]


class Wish(BaseModel):
    """What a customer asks for."""

    customer: str
    goods: str


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Creates the tables, which migrations do in earnest."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(wish: Wish, request: Request) -> dict[str, int]:
    """Takes an order. The answer comes after the commit."""
    with tracer.start_as_current_span("POST /orders", extract(request.headers), trace.SpanKind.SERVER):
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            order = Order(**wish.model_dump())
            session.add(order)
            await session.flush()  # gives the order its id
            event = {"order": order.id, **wish.model_dump()}
            # Events of one customer keep their order, because they have the same key.
            await stasher.stash(session, Record("orders", wish.customer, json.dumps(event)))
            if wish.goods == "unicorn":  # order and event are gone together
                raise HTTPException(409, "sold out")
        return {"order": order.id}
