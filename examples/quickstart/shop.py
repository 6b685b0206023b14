"""Takes an order: python shop.py 42 tea"""

import json
import os
import sys

import psycopg
from outbox_api import Record, Stasher

number, goods = sys.argv[1:]
stasher = Stasher("outbox")
with psycopg.connect(os.environ["POSTGRES"]) as connection:  # commits at its end
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, goods text)")
    connection.execute("INSERT INTO orders VALUES (%s, %s)", (number, goods))
    stasher.stash(connection, Record("orders", key=number, value=json.dumps({"goods": goods})))
