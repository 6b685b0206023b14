"""What sinks need besides the installed PySpark: jars of Maven Central, and an older PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from outbox_servers.services import ServiceError, find_java
from outbox_servers.services.cache import cached_folder, logged
from outbox_servers.services.maven import Coordinate, fetch_jars, pyspark_jars
from outbox_spark.application import JAVA_OPTIONS
from outbox_spark.class_data import find_archive, options_for

CHECKSUMS = Path(__file__).with_name("jars.sha256")
KAFKA = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
DELTA = ("io.delta", "delta-spark_4.2_2.13", "4.4.0")
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
OLDER = "4.2.0"
"""The latest PySpark that Delta runs on."""
OLDER_HASH = "5ad689d53570ee1674193fd4f9bda065f0db3be9363a27d2a3406cc457b70b61"
_SPARKS_OWN = ("hadoop-", "jackson-", "jsr305-", "log4j-", "lz4-", "parquet-", "scala-", "slf4j-", "snappy-")
"""How the jars begin that come with PySpark, in versions of its own."""


def jars_of(artifact: Coordinate) -> str:
    """Returns the jars of an artifact and of what it needs, as ``spark.jars`` names them."""
    _, name, version = artifact

    def build(folder: Path) -> None:
        logged(f"Fetching {name} {version} from Maven Central, once")
        fetch_jars([artifact], folder / "jars", find_java(), checksums=CHECKSUMS)

    jars = sorted((cached_folder(f"{name}-{version}", build) / "jars").glob("*.jar"))
    return ",".join(str(jar) for jar in jars if not jar.name.startswith(_SPARKS_OWN))


def older_pyspark() -> Path:
    """Returns a folder with the older PySpark alone, which stands before the installed one on a path."""

    def build(folder: Path) -> None:
        logged(f"Fetching PySpark {OLDER} from the package index (440 MB, once)")
        wanted = folder / "wanted.txt"
        wanted.write_text(f"pyspark=={OLDER} --hash=sha256:{OLDER_HASH}\n")
        uv = shutil.which("uv")
        pip = (
            [uv, "pip", "install", "--python", sys.executable]
            if uv
            else [sys.executable, "-m", "pip", "install"]
        )
        command = [
            *pip,
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(folder),
            "-r",
            str(wanted),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise ServiceError(f"PySpark {OLDER} could not be installed: {done.stderr[-2000:]}")

    return cached_folder(f"pyspark-{OLDER}", build)


def environment(pyspark: Path | None = None) -> dict[str, str]:
    """Returns the environment of a driver with the installed PySpark, or with another one."""
    own = {**find_java().environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if pyspark is None:
        return own
    path = os.pathsep.join([str(pyspark), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**own, "PYTHONPATH": path, "SPARK_HOME": str(pyspark / "pyspark")}


def java_options() -> str:
    """Returns the options of the installed PySpark's JVM, which starts sooner if its class data were kept."""
    archive = find_archive(find_java().home, pyspark_jars().parent, JAVA_OPTIONS)
    return JAVA_OPTIONS + (options_for(archive) if archive else "")
