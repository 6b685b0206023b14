"""Rolling updates of the chart's two replicas while records are written: what is lost, and the silence.

For root, with Docker, containerd, runc, kubectl and iptables: a node of Kubernetes on this machine runs the
pods (``bench/kubernetes_node.py``). At the end of each elector the database's password changes::

    make image && python -m bench.rolling_update --plugins /usr/lib/cni
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import yaml
from outbox_servers.services import PostgresServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.kubernetes_node import GATEWAY, Node, NodeBroker
from bench.whole_takeovers import Listener
from tests.shop import Shop

CHART = Path(__file__).parents[1] / "deploy" / "chart"
REPLICAS = 2
ELECTORS = ("kubernetes", "neli-kafka")
SETTLED = 3.0
"""Seconds of undisturbed harvest before and after each update."""
PAUSE = 0.001
"""With which the writers of a shop write some hundred records a second."""


class Release:
    """The chart, installed as users do, with an account of its own at the database.

    Args:
        node: The cluster.
        shop: Its outbox; the topic's name is that of the release.
        elector: The elector.
        image: The image, ``NAME:TAG``.
    """

    def __init__(self, node: Node, shop: Shop, elector: str, image: str) -> None:
        self._node, self._shop, self._name = node, shop, shop.topic
        self._execute(f'CREATE ROLE "{self._name}" SUPERUSER LOGIN')
        self._set_password()
        repository, tag = image.split(":")
        at = {**conninfo_to_dict(shop.dsn), "host": GATEWAY, "user": self._name, "password": None}
        harvest: dict[str, Any] = {
            "dataSource": make_conninfo("", **at),
            "baseKafkaConfig": {"bootstrap.servers": f"{GATEWAY}:{shop.kafka.bootstrap.split(':')[1]}"},
            "leaderGroupID": self._name,
            "elector": elector,
        }
        values = {
            "image": {"repository": repository, "tag": tag},
            "existingSecret": self._name,
            "config": {"harvest": harvest},
        }
        with TemporaryDirectory() as folder:
            file = Path(folder) / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            node.helm("install", self._name, str(CHART), "-f", str(file), "--wait", "--timeout=3m")

    def update(self) -> None:
        """Replaces all pods, and waits until the former ones are gone."""
        self._node.kubectl("rollout", "restart", f"deployment/{self._name}")
        self._node.kubectl("rollout", "status", f"deployment/{self._name}", "--timeout=180s")
        self._node.wait(lambda: len(self._pods()) == REPLICAS, "the former pods are gone")

    def change_password(self) -> None:
        """Changes the password, ends the account's sessions, and waits until the pods have new ones."""
        before = self._pods()
        self._set_password()
        sessions = f"FROM pg_stat_activity WHERE usename = '{self._name}'"
        self._execute(f"SELECT pg_terminate_backend(pid) {sessions}")
        self._node.wait(lambda: self._shop.database.fetch(f"SELECT 1 {sessions}"), "a pod has connected")
        assert self._pods() == before, "a pod was replaced"

    def remove(self) -> None:
        """Uninstalls the chart."""
        self._node.helm("uninstall", self._name, "--wait")

    def _set_password(self) -> None:
        """Changes the password in the database, and in the Secret."""
        password = token_hex()
        self._execute(f"ALTER ROLE \"{self._name}\" PASSWORD '{password}'")
        content = {"database-password": password, "viewer-token": token_hex()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name},
            "stringData": content,
        }
        self._node.kubectl("apply", "-f", "-", given=yaml.safe_dump(secret))

    def _execute(self, statement: str) -> None:
        """Executes a statement as the superuser, in autocommit mode."""
        with self._shop.connect() as connection:
            connection.execute(statement.encode())

    def _pods(self) -> list[str]:
        """Returns the pods that are there, those that end included, with their restarts."""
        columns = "custom-columns=NAME:.metadata.name,RESTARTS:.status.containerStatuses[0].restartCount"
        return self._node.kubectl("get", "pods", "--no-headers", "-o", columns).splitlines()


def silence(listener: Listener, action: Callable[[], None], title: str) -> float:
    """Does something while records are written; prints and returns the longest silence since."""
    at = time.time()
    action()
    took = time.time() - at
    time.sleep(SETTLED)
    longest = listener.longest_silence(at, time.time())
    print(f"{title}: {longest:.2f} s of silence in {took:.0f} s", flush=True)
    return longest


def measure(node: Node, shop: Shop, elector: str, image: str, rounds: int) -> None:
    """Updates a release again and again while records are written; prints what that costs."""
    release = Release(node, shop, elector, image)
    listener = Listener(shop)
    began = time.time()
    with shop.selling(PAUSE):
        silence(listener, lambda: time.sleep(SETTLED), f"{elector}, at first")
        calm = silence(listener, lambda: time.sleep(5 * SETTLED), f"{elector}, undisturbed")
        silences = [silence(listener, release.update, f"{elector}, update") for _ in range(rounds)]
        silence(listener, release.change_password, f"{elector}, new password")
        rate = shop.count() / (time.time() - began)
    shop.wait_until_harvested(60)
    result = shop.audit()
    print(
        f"{elector}: updates {median(silences):.2f} s of silence, {max(silences):.2f} s at most; undisturbed "
        f"{calm:.2f} s; {result.sent} records, {rate:.0f} a second: lost {result.lost}, repeated "
        f"{result.repeated}, out of order {result.out_of_order}, foreign {result.foreign}",
        flush=True,
    )
    if not result.good:
        print("logs:", shutil.copytree(node.logs, Path(f"{shop.topic}-logs")))
    listener.close()
    release.remove()


def main(
    plugins: Annotated[Path, typer.Option(help="The folder of the CNI plugins.")] = Path("/usr/lib/cni"),
    image: Annotated[str, typer.Option(help="The image, which Docker has.")] = "outbox:inline",
    rounds: Annotated[int, typer.Option(help="Updates for each elector.")] = 5,
    elector: Annotated[list[str], typer.Option(help="The electors.")] = list(ELECTORS),  # noqa: B006 - read only
) -> None:
    """Prints, for each elector, the silence of rolling updates and the audit."""
    with Node([image], plugins) as node, PostgresServer() as postgres, NodeBroker() as broker:
        for number, each in enumerate(elector):
            shop = Shop(postgres.create_database(f"rolling_{number}"), broker, f"rolling-{each}")
            shop.open()
            measure(node, shop, each, image, rounds)


if __name__ == "__main__":
    typer.run(main)
