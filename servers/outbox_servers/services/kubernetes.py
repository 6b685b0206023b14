"""A real API server of Kubernetes as a child process, on an etcd of its own; and its other programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from outbox_servers.certificates import LOCAL, Authority
from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import architecture
from outbox_servers.services.etcd import EtcdServer
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "1.36.3"
_HELM_VERSION = "3.19.5"
_MODULE = "k8s.io/kubernetes"
_PROGRAM = "kube-apiserver"
_ADMIN = "admin-of-tests"
SERVICES = "10.0.0"
"""What the addresses of services begin with; that of the API server itself is the first one."""


def find_program(name: str = _PROGRAM, progress: Progress = logged) -> Path:
    """Returns the program that the environment names or that is on ``PATH``, or else builds one, once.

    Args:
        name: A program of Kubernetes, such as ``kube-scheduler``, or ``helm``.
            ``OUTBOX_TEST_KUBE_SCHEDULER`` is its variable.
        progress: Called before a build.

    Raises:
        ServiceError: There is none, and Go is not there or does not build it.
    """
    variable = f"OUTBOX_TEST_{name.upper().replace('-', '_')}"
    if program := os.environ.get(variable) or shutil.which(name):
        return Path(program)
    version = _HELM_VERSION if name == "helm" else VERSION

    def build(folder: Path) -> None:
        if shutil.which("go") is None:
            raise ServiceError(f"{name} is built by Go: install Go, or set {variable} to a program")
        progress(f"Building {name} {version}, which takes some minutes the first time")
        if name == "helm":
            _go(folder, "install", "-trimpath", f"helm.sh/helm/v3/cmd/helm@v{version}")
        else:
            _build(folder, name)

    return cached_folder(f"{name}-{version}-{architecture()[0]}", build, progress=progress) / name


def _build(folder: Path, name: str) -> None:
    """Builds a program from its Go modules, which Go checks against the public list of their hashes."""
    module, head = folder / "go.mod", "module outbox.test/kubernetes\n"
    module.write_text(head)
    told = json.loads(_go(folder, "mod", "download", "-json", f"{_MODULE}@v{VERSION}"))
    own, version = Path(told["GoMod"]).read_text("utf-8"), f"v0.{VERSION.removeprefix('1.')}"
    # In its own repository the module takes these from a folder beside it; they are released in step.
    staged = re.findall(r"^\t(k8s\.io/\S+) => \./staging/", own, re.MULTILINE)
    [language] = re.findall(r"^go .*\n", own, re.MULTILINE)
    replaced = "".join(f"replace {each} => {each} {version}\n" for each in staged)
    module.write_text(f"{head}{language}require {_MODULE} v{VERSION}\n{replaced}")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"
    _go(
        folder,
        "build",
        "-mod=mod",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        name,
        f"{_MODULE}/cmd/{name}",
    )


def _go(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder)}
    done = subprocess.run(  # noqa: S603 - the arguments are this module's
        ["go", *arguments],  # noqa: S607 - the Go on PATH
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise ServiceError(f"go {arguments[0]} failed: {done.stderr[-1500:]}")
    return done.stdout


class KubeApiServer(Service):
    """An API server on 127.0.0.1 with TLS, RBAC and service accounts, without controllers and nodes.

    Args:
        progress: Called for downloads, the build and the start.

    Attributes:
        authority: The file with the authority of its certificate.
        signing_key: The file with the key that signs tokens of service accounts.
    """

    title: ClassVar[str] = "kube-apiserver"
    port_taken: ClassVar[str] = "address already in use"

    def __init__(self, *, progress: Progress = logged) -> None:
        super().__init__()
        self._progress = progress
        self._etcd = EtcdServer(progress=progress)
        authority = Authority(self.folder)
        self.authority = authority.certificate
        self._certificate = authority.issue("apiserver", (*LOCAL, f"{SERVICES}.1"))
        self.signing_key = self._certificate.key
        self._tokens = self.folder / "tokens.csv"
        self._admin = self.folder / "token"
        self._admin.write_text(_ADMIN)
        self._tokens.write_text(f"{_ADMIN},admin,admin,system:masters\n")
        handler = HTTPSHandler(context=ssl.create_default_context(cafile=str(self.authority)))
        # A proxy that the environment names is not for this machine.
        self._open = build_opener(ProxyHandler({}), handler).open

    @property
    def url(self) -> str:
        """Its address, ``https://127.0.0.1:port``."""
        return f"https://127.0.0.1:{self.port}"

    def admin(self) -> dict[str, Any]:
        """Returns how the administrator reaches the namespace ``default``; the token is in a file."""
        return {
            "server": self.url,
            "token_file": str(self._admin),
            "ca_file": str(self.authority),
            "namespace": "default",
        }

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request as the administrator, and returns the object of the answer.

        Raises:
            HTTPError: It is refused.
            OSError: The server cannot be reached.
        """
        headers = {"Authorization": f"Bearer {_ADMIN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with self._open(Request(self.url + path, data, headers, method=method), timeout=10) as answer:  # noqa: S310 - its own address
            return json.load(answer)

    def create_namespace(self, name: str) -> None:
        """Creates a namespace."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def create_account(self, namespace: str, name: str, rules: Sequence[Any]) -> str:
        """Creates a service account with a Role of these rules; returns a token for it."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        named = {"metadata": {"name": name}}
        self.ask("POST", accounts, named)
        self.ask("POST", f"{rbac}/roles", {**named, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        self.ask("POST", f"{rbac}/rolebindings", {**named, "roleRef": role, "subjects": [subject]})
        made = self.ask("POST", f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})
        return str(made["status"]["token"])

    def _launch(self) -> ServerProcess:
        program = find_program(progress=self._progress)
        self._etcd.start()
        self._progress(f"Starting {program.name} on {self.url}")
        certificate, key = self._certificate.certificate, self._certificate.key
        options = {
            "etcd-servers": f"http://{self._etcd.endpoint}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self.port,
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "token-auth-file": self._tokens,
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://outbox.test",
            "service-account-key-file": certificate,
            "service-account-signing-key-file": self.signing_key,
            "service-cluster-ip-range": f"{SERVICES}.0/24",
            "endpoint-reconciler-type": "none",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return ServerProcess(
            self.title, [str(program), *arguments], log=self.log, orphan_folder=self._orphan_folder
        )

    def _ready(self) -> bool:
        with suppress(OSError, HTTPError, ValueError):
            return bool(
                self.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
            ) and (bool(self.ask("GET", "/api/v1/namespaces/default")))
        return False

    def _shut_down(self) -> None:
        super()._shut_down()
        self._etcd.close()
