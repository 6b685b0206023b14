"""Takes orders: stores each order, and stashes its event, in one transaction.

    python examples/orders/app.py "host=localhost dbname=postgres user=postgres" --orders 10

Needs `pip install outbox-postgres 'psycopg[binary]' sqlalchemy`; it knows nothing of Kafka or Spark.
"""

import argparse
import json
import random
from decimal import Decimal

import psycopg
from outbox_api import Record
from outbox_api.application.stasher import Stasher
from sqlalchemy import Engine, Numeric, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

TOPIC = "orders"
DECLINED = 0.2
GOODS = {"tea": Decimal("3.20"), "coffee": Decimal("4.50"), "cake": Decimal("5.80")}

stasher = Stasher("outbox", "postgres")


class Base(DeclarativeBase):
    """The application's own tables."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(String(50))
    goods: Mapped[str] = mapped_column(String(50))
    price: Mapped[Decimal] = mapped_column(Numeric(10, 2))


def place_order(session: Session, customer: str, goods: str) -> Order:
    """Stores an order and stashes its event, in the session's transaction."""
    order = Order(customer=customer, goods=goods, price=GOODS[goods])
    session.add(order)
    session.flush()  # gives the order its id
    event = {"order": order.id, "customer": customer, "goods": goods, "price": str(order.price)}
    # Events of one customer keep their order, because they have the same key.
    stasher.stash(session, Record(TOPIC, customer, json.dumps(event), (("type", "order-placed"),)))
    return order


def connect(data_source: str) -> Engine:
    """Returns an engine for a libpq connection string, which is how `outbox` names a database too."""
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(data_source))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data_source", help="the database, as a libpq connection string")
    parser.add_argument("--orders", type=int, default=10, help="how many to take")
    arguments = parser.parse_args()
    engine = connect(arguments.data_source)
    Base.metadata.create_all(engine)
    placed = declined = 0
    for _ in range(arguments.orders):
        with Session(engine) as session:
            order = place_order(session, random.choice(["ada", "bob", "cleo"]), random.choice(list(GOODS)))
            if random.random() < DECLINED:
                # The card is declined: order and event are gone together, and nobody will hear of them.
                session.rollback()
                declined += 1
                continue
            session.commit()
            placed += 1
            print(f"order {order.id}: {order.customer} has {order.goods}")
    engine.dispose()
    print(f"{placed} placed, {declined} declined")


if __name__ == "__main__":
    main()
