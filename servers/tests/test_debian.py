"""Programs are unpacked from Debian packages of a local archive, without the internet."""

from __future__ import annotations

import hashlib
import io
import lzma
import platform
import re
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pysequoia
import pytest
from outbox_servers.services import ServiceError, signed_release
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.mysql_binaries import MYSQL, find_installation
from outbox_servers.services.signed_release import KEYS
from pysequoia import Cert, SignatureMode, Tsk

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MACHINE, TRIPLET = architecture()
SID = Suite("Debian", "sid")
LIBRARIES = f"usr/lib/{TRIPLET}"

_PARAGRAPH = """Package: {name}
Version: 1
Section: {section}
Depends: {needs}
Description: something
 Depends: on nothing in this line
Filename: pool/{name}.deb
Size: {size}
SHA256: {sha256}
"""


def _deb(files: dict[str, str], *, ubuntu: bool = False) -> bytes:
    """A package of these files; content that begins with an arrow is a link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w" if ubuntu else "w:xz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"./{path}")
            if text.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, text[2:]
                archive.addfile(member)
            else:
                member.size, member.mode = len(text), 0o755
                archive.addfile(member, io.BytesIO(text.encode()))
    content = zstd.compress(data.getvalue()) if ubuntu else data.getvalue()
    suffix = "zst" if ubuntu else "xz"
    package = b"!<arch>\n"
    for name, part in ("debian-binary", b"2.0"), ("control.tar.xz", b""), (f"data.tar.{suffix}", content):
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{0o100644:<8}{len(part):<10}`\n"
        package += header.encode() + part + b"\n" * (len(part) % 2)
    return package


@dataclass(frozen=True)
class Signer:
    """Somebody with a key."""

    secret: Tsk

    @classmethod
    def named(cls, name: str) -> Signer:
        return cls(Tsk.generate(user_id=name))

    @property
    def public(self) -> Cert:
        return self.secret.extract_certificate()


DEBIAN = Signer.named("Debian's archive")


def sign(root: Path, signer: Signer) -> None:
    """Writes the signed list of the suite's files, as they are now."""
    path = f"main/binary-{MACHINE}/Packages.xz"
    content = (root / "dists" / "sid" / path).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    listed = f"Suite: sid\nMD5Sum:\n {'0' * 32} 1 {path}\nSHA256:\n {digest} {len(content)} {path}\n"
    signed = pysequoia.sign(signer.secret.signer(), listed.encode(), mode=SignatureMode.CLEAR)
    (root / "dists" / "sid" / "InRelease").write_bytes(signed)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a server that needs two libraries, in a circle, and a script for its installation."""
    root = tmp_path / "archive"
    (root / "pool").mkdir(parents=True)
    packages = [
        ("server", "database", "libone (>= 1) | libnone, perl:any, libnone", {"usr/sbin/server": "runs"}),
        ("libone", "libs", "libtwo", {f"{LIBRARIES}/libone.so.1": "->libone.so.1.2"}),
        ("libtwo", "libs", "libone", {f"{LIBRARIES}/ld-linux-any.so.2": "loads", "etc/passwd": "no"}),
        ("perl", "perl", "", {f"{LIBRARIES}/libperl.so": "no"}),
    ]
    index = []
    for name, section, needs, files in packages:
        deb = _deb({"usr/share/doc/copyright": "free", **files}, ubuntu=name == "libtwo")
        (root / "pool" / f"{name}.deb").write_bytes(deb)
        digest = hashlib.sha256(deb).hexdigest()
        index.append(_PARAGRAPH.format(name=name, section=section, needs=needs, size=len(deb), sha256=digest))
    suite = root / "dists" / "sid" / "main" / f"binary-{MACHINE}"
    suite.mkdir(parents=True)
    (suite / "Packages.xz").write_bytes(lzma.compress("\n".join(index).encode()))
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "debian.asc").write_text(str(DEBIAN.public))
    monkeypatch.setattr(signed_release, "KEYS", keys)
    sign(root, DEBIAN)
    monkeypatch.setenv("OUTBOX_DEBIAN_MIRROR", root.as_uri())
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return root


@pytest.mark.usefixtures("archive")
def test_a_program_comes_with_the_libraries_it_needs_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    unpack_programs(["server"], SID, folder, re.compile("usr/sbin/"))
    found = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir())
    assert found == [f"{LIBRARIES}/ld-linux-any.so.2", f"{LIBRARIES}/libone.so.1", "usr/sbin/server"]
    assert (folder / LIBRARIES / "libone.so.1").readlink() == Path("libone.so.1.2")
    assert loader_command(folder) == [
        f"{folder}/{LIBRARIES}/ld-linux-any.so.2",
        "--library-path",
        f"{folder}/{LIBRARIES}",
    ]


@pytest.mark.usefixtures("archive")
def test_a_package_that_is_not_the_one_described_is_refused(archive: Path, tmp_path: Path) -> None:
    (archive / "pool" / "libtwo.deb").write_bytes(_deb({"usr/sbin/evil": "runs"}))
    with pytest.raises(ServiceError, match=r"libtwo\.deb is not the file that the index"):
        unpack_programs(["server"], SID, tmp_path, re.compile("usr/sbin/"))
    assert not (tmp_path / "usr/sbin/evil").exists()


def test_an_index_that_the_distribution_has_not_signed_is_refused(archive: Path, tmp_path: Path) -> None:
    sign(archive, Signer.named("Debian's archive"))
    with pytest.raises(ServiceError, match="Debian has not signed this index"):
        unpack_programs(["server"], SID, tmp_path, re.compile("usr/sbin/"))
    release = archive / "dists" / "sid" / "InRelease"
    sign(archive, DEBIAN)
    release.write_bytes(release.read_bytes().replace(b"Suite: sid", b"Suite: odd"))
    with pytest.raises(ServiceError, match="Debian has not signed this index"):
        unpack_programs(["server"], SID, tmp_path, re.compile("usr/sbin/"))
    assert not (tmp_path / "usr").exists()


def test_an_index_that_is_not_the_signed_one_is_refused(archive: Path, tmp_path: Path) -> None:
    index = archive / "dists" / "sid" / "main" / f"binary-{MACHINE}" / "Packages.xz"
    index.write_bytes(lzma.compress(lzma.decompress(index.read_bytes()) + b"\n"))
    with pytest.raises(ServiceError, match=r"Packages\.xz is not the file that Debian has signed"):
        unpack_programs(["server"], SID, tmp_path, re.compile("usr/sbin/"))
    assert not (tmp_path / "usr").exists()


@pytest.mark.parametrize(
    ("distribution", "fingerprints"),
    [
        (
            "debian",
            {
                "b8b80b5b623eab6ad8775c45b7c5d7d6350947f8",
                "4d64fec119c2029067d6e791f8d2585b8783d481",
                "04b54c3cdca79751b16bc6b5225629df75b188bd",
                "41587f7db8c774bccf131416762f67a0b2c39de4",
            },
        ),
        ("ubuntu", {"f6ecb3762474eda9d21b7022871920d1991bc93c"}),
    ],
)
def test_the_keys_are_those_that_the_distributions_publish(distribution: str, fingerprints: set[str]) -> None:
    """ftp-master.debian.org/keys.html, wiki.ubuntu.com/SecurityTeam/FAQ."""
    keys = Cert.split_bytes((KEYS / f"{distribution}.asc").read_bytes())
    assert {str(key.fingerprint) for key in keys} == fingerprints


@pytest.mark.usefixtures("archive")
def test_without_packages_or_an_installation_every_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_more: None)
    with pytest.raises(
        ServiceError, match="mysqld is not installed here: That suite has no package mysql-server-core"
    ):
        find_installation(MYSQL)
    monkeypatch.setenv("OUTBOX_DEBIAN_MIRROR", (tmp_path / "nowhere").as_uri())
    with pytest.raises(ServiceError, match=r"InRelease.*OUTBOX_DEBIAN_MIRROR"):
        find_installation(MYSQL)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(ServiceError, match="need Linux on x86_64 or aarch64; this is Darwin"):
        find_installation(MYSQL)
    assert list((tmp_path / "cache").glob("mysql*/")) == []
