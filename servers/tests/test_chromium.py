"""Chromium as a service: it shows pages, from Debian's packages as from the machine's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from outbox_servers.services import ChromiumBrowser, ServiceError
from outbox_servers.services.chromium import PROGRAM_VARIABLE, Installation, find_installation

NOWHERE = {"PATH": "/nowhere"}


def titles(browser: ChromiumBrowser) -> set[str]:
    with build_opener(ProxyHandler({})).open(f"{browser.url}/json/list", timeout=60) as answer:
        return {each["title"] for each in json.load(answer)}


def test_debians_packages_bring_all_that_it_needs(tmp_path: Path) -> None:
    installation = find_installation(NOWHERE)
    assert re.match(r"\d+\.", installation.version)
    assert installation.fonts
    assert list(installation.fonts.rglob("*.ttf"))
    page = tmp_path / "page.html"
    page.write_text("<script>document.title = 6 * 7</script>")
    with ChromiumBrowser(installation=installation) as browser:
        new = Request(f"{browser.url}/json/new?{page.as_uri()}", method="PUT")
        with build_opener(ProxyHandler({})).open(new, timeout=60):
            pass
        while "42" not in titles(browser):  # pytest bounds it
            time.sleep(0.05)
    assert not browser.folder.exists()


def test_debians_packages_need_of_the_machine_its_c_library_alone() -> None:
    installation = find_installation(NOWHERE)
    tracing = {
        "LD_TRACE_LOADED_OBJECTS": "1",
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, installation.libraries)),
    }
    done = subprocess.run([installation.program], check=True, capture_output=True, text=True, env=tracing)
    found = dict(re.findall(r"^\s*(\S+) => (.*?)(?: \(0x\w+\))?$", done.stdout, re.MULTILINE))
    assert len(found) > 40
    folder = installation.program.partition("/usr/lib/")[0]
    of_machine = {name for name, path in found.items() if not path.startswith(f"{folder}/")}
    assert "libc.so.6" in of_machine
    assert {each.partition(".")[0] for each in of_machine} <= {"libc", "libm", "libdl", "libpthread", "librt"}


def test_the_named_program_is_used_or_refused(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho Google Chrome 150.1\n")
    program.chmod(0o755)
    assert find_installation({PROGRAM_VARIABLE: str(program)}) == Installation(str(program), "150.1")
    program.rename(tmp_path / "chromium")
    assert find_installation({"PATH": str(tmp_path)}).program == str(tmp_path / "chromium")
    with pytest.raises(ServiceError, match="mine does not run"):
        find_installation({PROGRAM_VARIABLE: str(program)})


def test_without_any_the_cure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path))
    monkeypatch.setenv("OUTBOX_DEBIAN_MIRROR", (tmp_path / "none").as_uri())
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with pytest.raises(ServiceError, match=r"OUTBOX_DEBIAN_MIRROR.*apt-get install chromium.*CHROMIUM"):
        find_installation(NOWHERE)


def test_a_program_that_does_not_serve_is_an_error_with_its_log() -> None:
    nothing = Installation("/bin/false", "0")
    with pytest.raises(ServiceError, match="before it was ready"), ChromiumBrowser(installation=nothing):
        pass
