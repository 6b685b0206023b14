"""What Spark tells executors in pods, on a real API server of Kubernetes without a node."""

from __future__ import annotations

from time import monotonic, sleep

import pytest
from outbox_servers.services.kubernetes import KubeApiServer
from outbox_spark.application import Application

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
"""The API server is built the first time."""

HOST = "127.0.0.1"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 120.0
_CLIENT = "spark.kubernetes.authenticate"


@pytest.mark.slow
def test_executors_in_pods_connect_to_the_drivers_host_whatever_it_binds_to() -> None:
    with KubeApiServer() as api:
        api.create_account("default", "default", [])
        admin = api.admin()
        settings = {
            f"{_CLIENT}.oauthTokenFile": admin["token_file"],
            f"{_CLIENT}.caCertFile": admin["ca_file"],
            "spark.kubernetes.container.image": "outbox.test/none:1",
            "spark.executor.instances": "1",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": "0.0.0.0",
            "spark.driver.memory": "512m",
        }
        application = Application("pods", f"k8s://{api.url}", settings)
        try:
            give_up = monotonic() + PATIENCE
            while not (pods := api.ask("GET", PODS)["items"]) and monotonic() < give_up:
                sleep(0.2)
        finally:
            application.stop()
    [container] = pods[0]["spec"]["containers"]
    [url] = [each["value"] for each in container["env"] if each["name"] == "SPARK_DRIVER_URL"]
    assert f"@{HOST}:" in url
