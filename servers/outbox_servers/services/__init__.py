"""Real servers as child processes, for tests, demonstrations and benchmarks; imports no test library."""

from outbox_servers.services.apicurio import ApicurioServer
from outbox_servers.services.chromium import ChromiumBrowser
from outbox_servers.services.etcd import EtcdServer
from outbox_servers.services.external import Etcd, Kafka, MySql, Postgres, ZooKeeper, connect_mysql
from outbox_servers.services.java import Java, find_java, truststore_options
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.kafka_cluster import KafkaCluster
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_servers.services.nginx import NginxServer
from outbox_servers.services.postgres import PostgresServer
from outbox_servers.services.process import ServiceError, free_port
from outbox_servers.services.prometheus import PrometheusServer
from outbox_servers.services.service import Service
from outbox_servers.services.spark import SparkStandalone
from outbox_servers.services.zookeeper import ZooKeeperServer

__all__ = [
    "ApicurioServer",
    "ChromiumBrowser",
    "Etcd",
    "EtcdServer",
    "Java",
    "Kafka",
    "KafkaBroker",
    "KafkaCluster",
    "MariaDbServer",
    "MySql",
    "MySqlServer",
    "NginxServer",
    "Postgres",
    "PostgresServer",
    "PrometheusServer",
    "Service",
    "ServiceError",
    "SparkStandalone",
    "ZooKeeper",
    "ZooKeeperServer",
    "connect_mysql",
    "find_java",
    "free_port",
    "truststore_options",
]
