"""A cluster of Kubernetes on this machine, for root, with one node: kubelet, containerd and runc run pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.kubernetes import SERVICES, KubeApiServer, find_program
from outbox_servers.services.process import ServerProcess

GATEWAY = "10.88.0.1"
"""This machine, as pods see it; what listens on 127.0.0.1 is there, too, at the same port."""
_PODS = "10.88.0.0/24"
_BRIDGE = "outbox0"
_PATIENCE = 120.0
_CONTROLLERS = (
    "deployment",
    "replicaset",
    "serviceaccount",
    "disruption",
    "root-ca-certificate-publisher",
    "node-lifecycle",
    "garbage-collector",
    "endpointslice",
)


def run(*command: str | Path, given: str | None = None) -> str:
    """Runs a command, which must succeed; returns its output."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=given)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed: {done.stdout}{done.stderr}")
    return done.stdout


class NodeBroker(KafkaBroker):
    """A broker whose address is the same for pods and for this machine."""

    def _launch(self) -> ServerProcess:
        self._properties["advertised.listeners"] = f"PLAINTEXT://{GATEWAY}:{self.port}"
        return super()._launch()


class Node(ExitStack):
    """The cluster, from entering to leaving.

    Args:
        images: Images of Docker that pods may have. ``sleep`` of the first one keeps a pod's network.
        plugins: The folder of the CNI plugins ``bridge``, ``host-local`` and ``loopback``.

    Attributes:
        api: The API server.
        logs: The folder with the logs of pods.
    """

    def __init__(self, images: Sequence[str], plugins: Path) -> None:
        super().__init__()
        self._images, self._plugins = images, plugins

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        self.api = self.enter_context(KubeApiServer())
        self._folder = self.api.folder / "node"
        self._folder.mkdir()
        self.logs = self._folder / "pods"
        self.enter_context(_network(self.api.port))
        self._kubeconfig = self._write("kubeconfig", self._access())
        self._start_containerd()
        self._start_control()
        self._start_kubelet()
        for state in ("create", "condition=Ready"):
            self.kubectl("wait", f"--for={state}", "node/node", f"--timeout={_PATIENCE:.0f}s")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Runs kubectl as the administrator; returns what it says."""
        return run("kubectl", f"--kubeconfig={self._kubeconfig}", *arguments, given=given)

    def helm(self, *arguments: str) -> str:
        """Runs Helm as the administrator; returns what it says."""
        return run(find_program("helm"), f"--kubeconfig={self._kubeconfig}", *arguments)

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Waits until a condition is met."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {_PATIENCE:g} s: {what}")
            time.sleep(0.2)

    def _write(self, name: str, content: object) -> Path:
        file = self._folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def _access(self) -> dict[str, Any]:
        admin = self.api.admin()
        cluster = {"server": admin["server"], "certificate-authority": admin["ca_file"]}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"tokenFile": admin["token_file"]}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }

    def _run(self, program: str | Path, *arguments: str) -> None:
        """Runs a program until the cluster ends."""
        name = Path(program).name
        process = ServerProcess(name, [str(program), *arguments], log=self._folder / f"{name}.log")
        self.callback(process.stop)

    def _start_containerd(self) -> None:
        self._socket = self._folder / "containerd.sock"
        network = {
            "cniVersion": "0.4.0",
            "name": "outbox",
            "type": "bridge",
            "bridge": _BRIDGE,
            "isGateway": True,
            "ipam": {"type": "host-local", "subnet": _PODS, "dataDir": str(self._folder / "addresses"),
                     "routes": [{"dst": "0.0.0.0/0"}]},
        }  # fmt: skip
        (self._folder / "net.d").mkdir()
        self._write("net.d/10-outbox.conf", network)
        config = f"""
version = 2
root = "{self._folder}/root"
state = "{self._folder}/state"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "outbox.test/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self._plugins}"
    conf_dir = "{self._folder}/net.d"
"""
        self.callback(_end_shims, self._folder)
        self._run("containerd", "--config", str(self._write("containerd.toml", config)))
        run("docker", "build", "--quiet", "--tag", "outbox.test/pause:1", "-",
            given=f'FROM {self._images[0]}\nENTRYPOINT ["sleep", "infinity"]\n')  # fmt: skip
        archive = self._folder / "images.tar"
        run("docker", "save", "--output", archive, "outbox.test/pause:1", *self._images)
        ctr = ("ctr", f"--address={self._socket}", "--namespace=k8s.io")
        self.wait(self._socket.exists, "containerd listens")
        run(*ctr, "images", "import", archive)
        archive.unlink()

    def _start_control(self) -> None:
        self._run(
            find_program("kube-controller-manager"),
            f"--kubeconfig={self._kubeconfig}",
            f"--service-account-private-key-file={self.api.signing_key}",
            f"--root-ca-file={self.api.authority}",
            f"--controllers={','.join(f'{name}-controller' for name in _CONTROLLERS)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
        )
        self._run(
            find_program("kube-scheduler"),
            f"--kubeconfig={self._kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
        )

    def _start_kubelet(self) -> None:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                               "x509": {"clientCAFile": str(self.api.authority)}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "podLogsDir": str(self.logs),
            "enforceNodeAllocatable": [],
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "1Mi"},
        }  # fmt: skip
        self._run(
            find_program("kubelet"),
            f"--config={self._write('kubelet.json', config)}",
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--cert-dir={self._folder / 'certificates'}",
            "--hostname-override=node",
        )


def _end_shims(folder: Path) -> None:
    """Ends what containerd leaves behind: processes of pods, and what is mounted for them."""
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if "containerd-shim" in command and str(folder) in command:
            for each in (*process.children(recursive=True), process):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([each for each in mounted if each.startswith(str(folder))]):
        subprocess.run(["umount", "--lazy", path], check=False)


@contextmanager
def _network(api_port: int) -> Iterator[None]:
    """Lets pods reach what listens on 127.0.0.1, and the API server where they expect it."""
    run("ip", "link", "add", _BRIDGE, "type", "bridge")
    inbound = ("PREROUTING", "-i", _BRIDGE, "-p", "tcp")
    own = "127.0.0.1"
    rules = [
        (*inbound, "-d", GATEWAY, "-j", "DNAT", "--to-destination", own),
        (*inbound, "-d", f"{SERVICES}.1", "-j", "DNAT", "--to-destination", f"{own}:{api_port}"),
        # The servers let in who comes from this machine.
        ("INPUT", "-p", "tcp", "-s", _PODS, "-d", own, "-j", "SNAT", "--to-source", own),
        ("OUTPUT", "-p", "tcp", "-d", GATEWAY, "-j", "REDIRECT"),
    ]
    try:
        run("ip", "address", "add", f"{GATEWAY}/24", "dev", _BRIDGE)
        run("ip", "link", "set", _BRIDGE, "up")
        Path(f"/proc/sys/net/ipv4/conf/{_BRIDGE}/route_localnet").write_text("1")
        for rule in rules:
            run("iptables", "-t", "nat", "-A", *rule)
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-t", "nat", "-D", *rule], check=False, capture_output=True)
        run("ip", "link", "delete", _BRIDGE)
