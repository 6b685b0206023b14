"""The example on FastAPI passes its own tests, on real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from outbox_servers.services.external import Kafka
from psycopg.conninfo import conninfo_to_dict

SHOP = Path(__file__).parent.parent / "examples" / "fastapi_shop"


def test_the_shop_passes_its_tests(postgres_dsn: str, kafka_broker: Kafka) -> None:
    url = f"postgresql+psycopg://?{urlencode(conninfo_to_dict(postgres_dsn))}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error"],
        cwd=SHOP,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "DATABASE_URL": url, "KAFKA": kafka_broker.bootstrap},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
