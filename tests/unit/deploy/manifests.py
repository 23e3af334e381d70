"""The rendered manifests, and what is asked of them: which pods there are, and who may reach whom."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[3]
KUSTOMIZE = REPOSITORY / "deploy" / "kustomize"
_WORKLOADS = ("Deployment", "StatefulSet")

Manifest = dict[str, Any]
Labels = Mapping[str, str]


def render(overlay: str) -> list[Manifest]:
    """What kustomize makes of an overlay. Raises RuntimeError where it is not installed, or says no."""
    program = shutil.which("kustomize", path=str(Path(sys.executable).parent)) or shutil.which("kustomize")
    command = [program, "build"] if program is not None else ["kubectl", "kustomize"]
    if program is None and shutil.which("kubectl") is None:
        raise RuntimeError(
            "kustomize is not installed: GOBIN=$PWD/.venv/bin go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1, "
            "or install kubectl"
        )
    done = subprocess.run(
        [*command, str(KUSTOMIZE / "overlays" / overlay)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"kustomize refuses the overlay {overlay}: {done.stderr}")
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet."""

    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def replicas(self) -> int:
        return int(self.manifest["spec"]["replicas"])

    @property
    def labels(self) -> Labels:
        """Of its pods."""
        labels: Labels = self.manifest["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def pod(self) -> Manifest:
        """Its pods' spec."""
        spec: Manifest = self.manifest["spec"]["template"]["spec"]
        return spec

    @property
    def containers(self) -> list[Manifest]:
        """All of them, those that only prepare included."""
        return [*self.pod.get("initContainers", ()), *self.pod["containers"]]

    @property
    def lasting(self) -> list[Manifest]:
        """Those that run as long as the pod."""
        return [
            *(each for each in self.pod.get("initContainers", ()) if each.get("restartPolicy") == "Always"),
            *self.pod["containers"],
        ]

    def container(self, name: str) -> Manifest:
        (found,) = (each for each in self.containers if each["name"] == name)
        return found

    @property
    def ports(self) -> dict[str, int]:
        """Every named port."""
        return {port["name"]: port["containerPort"] for each in self.containers for port in each.get("ports", ())}


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] in kinds]


def workloads(manifests: list[Manifest]) -> dict[str, Workload]:
    return {each["metadata"]["name"]: Workload(each) for each in of_kind(manifests, *_WORKLOADS)}


def selects(selector: Manifest, labels: Labels) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    assert set(selector) <= {"matchLabels"}, f"only matchLabels is used here, not {selector}"
    wanted = selector.get("matchLabels", {})
    return bool(wanted.items() <= labels.items())


@dataclass(frozen=True, slots=True)
class Pod:
    """One end of a connection."""

    labels: Labels
    namespace: str = "constraintd"


def may_connect(manifests: list[Manifest], source: Pod, target: Pod, port: int) -> bool:
    """Whether the network policies let a TCP connection through, at both of its ends."""
    return may_leave(manifests, source, target, port) and may_enter(manifests, source, target, port)


def may_leave(manifests: list[Manifest], source: Pod, target: Pod, port: int) -> bool:
    """Whether the policies of the one who connects let it out."""
    rules = _rules(manifests, source, "egress")
    return rules is None or any(_lets(rule, target, port, "to") for rule in rules)


def may_enter(manifests: list[Manifest], source: Pod, target: Pod, port: int) -> bool:
    """Whether the policies of the one who is connected to let it in."""
    rules = _rules(manifests, target, "ingress")
    return rules is None or any(_lets(rule, source, port, "from") for rule in rules)


def _rules(manifests: list[Manifest], pod: Pod, direction: str) -> list[Manifest] | None:
    """What is let through to or from a pod; None where no policy says anything of it."""
    if pod.namespace != "constraintd":
        return None
    policies = [
        each["spec"]
        for each in of_kind(manifests, "NetworkPolicy")
        if selects(each["spec"]["podSelector"], pod.labels) and direction.capitalize() in each["spec"]["policyTypes"]
    ]
    return [rule for policy in policies for rule in policy.get(direction, ())] if policies else None


def _lets(rule: Manifest, peer: Pod, port: int, way: str) -> bool:
    ports = [each["port"] for each in rule["ports"] if each["protocol"] == "TCP"]
    return port in ports and any(_is(each, peer) for each in rule[way])


def _is(described: Manifest, peer: Pod) -> bool:
    if "ipBlock" in described:  # addresses off the cluster; pods have private ones, which are excepted
        return False
    namespaces = described.get("namespaceSelector")
    if namespaces is None:
        here = peer.namespace == "constraintd"
    else:
        here = selects(namespaces, {"kubernetes.io/metadata.name": peer.namespace})
    return here and selects(described.get("podSelector", {}), peer.labels)


def mounts(workload: Workload, container: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Where a container has which volume."""
    volumes = {each["name"]: each for each in workload.pod.get("volumes", ())}
    claimed = [each["metadata"]["name"] for each in workload.manifest["spec"].get("volumeClaimTemplates", ())]
    volumes |= {name: {"name": name, "persistentVolumeClaim": {}} for name in claimed}
    for mount in container.get("volumeMounts", ()):
        yield mount["mountPath"], volumes[mount["name"]]
