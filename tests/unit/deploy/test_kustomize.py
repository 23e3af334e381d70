"""Both overlays, as the real kustomize renders them: valid, consistent in themselves, and locked down."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import kubernetes_validate
import pytest

from tests.unit.deploy.manifests import (
    REPOSITORY,
    Manifest,
    Pod,
    Workload,
    may_connect,
    may_enter,
    may_leave,
    mounts,
    of_kind,
    render,
    selects,
    workloads,
)

# They need kustomize, which is a Go program.
pytestmark = pytest.mark.services

OVERLAYS = ("sidecar", "replicas")
HEALTH_PORTS = {"daemon": 50061, "runner": 50062}


@pytest.fixture(scope="module", params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(request.param)


@pytest.fixture(scope="module")
def sidecar() -> list[Manifest]:
    return render("sidecar")


@pytest.fixture(scope="module")
def replicas() -> list[Manifest]:
    return render("replicas")


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_every_manifest_is_valid_by_kubernetes_own_schemas(manifests: list[Manifest], version: str) -> None:
    assert len(manifests) > 10
    for each in manifests:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelled_field_would_be_found(sidecar: list[Manifest]) -> None:
    runner = workloads(sidecar)["runner"].manifest
    runner = {**runner, "spec": {**runner["spec"], "replica": 3}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(runner, kubernetes_validate.latest_version(), strict=True)


def test_no_two_manifests_have_one_name_and_all_lie_in_the_namespace(manifests: list[Manifest]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(names)) == len(names)
    assert {each["metadata"].get("namespace") for each in manifests if each["kind"] != "Namespace"} == {"constraintd"}


def test_what_runs_in_which_overlay(sidecar: list[Manifest], replicas: list[Manifest]) -> None:
    assert {name: each.replicas for name, each in workloads(sidecar).items()} == {"runner": 2}
    assert {name: each.replicas for name, each in workloads(replicas).items()} == {
        "daemon": 3,
        "envoy": 2,
        "runner": 2,
        "valkey": 1,
    }


def test_every_workload_selects_its_own_pods_and_no_others(manifests: list[Manifest]) -> None:
    all_workloads = workloads(manifests)
    for name, workload in all_workloads.items():
        selector = workload.manifest["spec"]["selector"]
        assert [other for other, each in all_workloads.items() if selects(selector, each.labels)] == [name]
        for spread in workload.pod.get("topologySpreadConstraints", ()):
            assert spread["labelSelector"] == selector


def test_every_service_leads_to_ports_that_its_pods_have(manifests: list[Manifest]) -> None:
    services = of_kind(manifests, "Service")
    for service in services:
        (workload,) = (each for each in workloads(manifests).values() if selected_by(service, each))
        for port in service["spec"]["ports"]:
            assert workload.ports[port["targetPort"]] == port["port"], service["metadata"]["name"]
    headless = {each["metadata"]["name"] for each in services if each["spec"].get("clusterIP") == "None"}
    for workload in workloads(manifests).values():
        if workload.manifest["kind"] == "StatefulSet":
            assert workload.manifest["spec"]["serviceName"] in headless


def test_every_workload_of_several_pods_loses_at_most_one_at_a_time(manifests: list[Manifest]) -> None:
    budgets = of_kind(manifests, "PodDisruptionBudget")
    for name, workload in workloads(manifests).items():
        found = [each for each in budgets if selects(each["spec"]["selector"], workload.labels)]
        assert [each["spec"].get("maxUnavailable") for each in found] == ([1] if workload.replicas > 1 else []), name
        assert workload.replicas == 1 or workload.pod["topologySpreadConstraints"]


def test_every_lasting_container_has_all_three_probes_at_a_port_of_its_own(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests).values():
        for container in workload.lasting:
            own = {port["containerPort"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                kind = next(key for key in container[probe] if key in ("grpc", "httpGet", "tcpSocket", "exec"))
                assert kind == "exec" or container[probe][kind]["port"] in own, (container["name"], probe)


@pytest.mark.parametrize("name", ["daemon", "runner"])
def test_readiness_and_liveness_are_asked_for_apart_at_the_health_port(manifests: list[Manifest], name: str) -> None:
    (container,) = (
        each for workload in workloads(manifests).values() for each in workload.lasting if each["name"] == name
    )
    (port,) = (port["containerPort"] for port in container["ports"] if port["name"].startswith("health"))
    assert port == HEALTH_PORTS[name]
    assert container["readinessProbe"]["grpc"] == {"port": port}
    assert container["livenessProbe"]["grpc"] == {"port": port, "service": "liveness"}
    assert container["startupProbe"]["grpc"] == {"port": port, "service": "liveness"}


def test_every_container_is_locked_down(manifests: list[Manifest]) -> None:
    (namespace,) = of_kind(manifests, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for workload in workloads(manifests).values():
        pod = workload.pod
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in workload.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_every_container_has_requests_and_limits(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests).values():
        for container in workload.containers:
            for bound in ("requests", "limits"):
                assert set(container["resources"][bound]) == {"cpu", "memory"}, container["name"]


def test_every_image_is_pinned_and_ours_have_the_package_s_version(manifests: list[Manifest]) -> None:
    version = re.search(r'^version = "(.+)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    for workload in workloads(manifests).values():
        for container in workload.containers:
            name, _, tag = container["image"].partition(":")
            assert re.search(r"\d+\.\d+\.\d+", tag), container["image"]
            assert tag == version[1] or not name.startswith("constraintd/")


def test_every_mounted_config_map_is_there(manifests: list[Manifest]) -> None:
    there = {each["metadata"]["name"] for each in of_kind(manifests, "ConfigMap")}
    mounted = {
        volume["configMap"]["name"]
        for workload in workloads(manifests).values()
        for volume in workload.pod.get("volumes", ())
        if "configMap" in volume
    }
    assert mounted == there


def test_the_secrets_that_are_wanted_are_those_that_the_operations_page_makes(manifests: list[Manifest]) -> None:
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    made = set(re.findall(r"create secret (?:generic|tls) (\S+)", page))
    wanted = secrets(manifests)
    assert wanted
    assert wanted <= made


def test_no_secret_is_rendered(manifests: list[Manifest]) -> None:
    assert of_kind(manifests, "Secret") == []


def test_all_ingress_and_egress_is_denied_unless_a_policy_says_otherwise(manifests: list[Manifest]) -> None:
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in [
        each["spec"] for each in of_kind(manifests, "NetworkPolicy")
    ]


def test_every_policy_is_for_pods_that_there_are(manifests: list[Manifest]) -> None:
    for policy in of_kind(manifests, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]
        assert any(selects(selector, each.labels) for each in workloads(manifests).values()), policy["metadata"]["name"]


CLIENT = Pod({"constraintd-client": "true"}, namespace="shop")
OWN_RUNNER = Pod({"constraintd-runner": "true"}, namespace="vision")
STRANGER = Pod({"app": "web"}, namespace="shop")
SCRAPER = Pod({"app": "prometheus"}, namespace="monitoring")
PORTS = {"runner": 50052, "daemon": 50051, "envoy": 50050, "valkey": 6379}


WAYS_WITH_REPLICAS = {
    ("runner", "envoy"),
    ("envoy", "daemon"),
    ("daemon", "valkey"),
}
FROM_ELSEWHERE = {
    ("client", "runner"),
    ("own runner", "envoy"),
}


def test_who_may_reach_whom_with_replicas(replicas: list[Manifest]) -> None:
    pods = {name: Pod(each.labels) for name, each in workloads(replicas).items()}
    sources = pods | {"client": CLIENT, "own runner": OWN_RUNNER, "stranger": STRANGER}

    def ways(lets: Callable[[list[Manifest], Pod, Pod, int], bool], among: Mapping[str, Pod]) -> set[tuple[str, str]]:
        return {
            (source, target)
            for source, pod in among.items()
            for target in PORTS
            for port in PORTS.values()
            if lets(replicas, pod, pods[target], port)
        }

    # Each way is said at both of its ends, so that one of them may be wrong.
    assert ways(may_leave, pods) == WAYS_WITH_REPLICAS
    assert ways(may_enter, sources) == WAYS_WITH_REPLICAS | FROM_ELSEWHERE
    for source, target in WAYS_WITH_REPLICAS | FROM_ELSEWHERE:
        assert may_connect(replicas, sources[source], pods[target], PORTS[target])


def test_beside_its_runner_a_daemon_has_no_port_for_calls(sidecar: list[Manifest]) -> None:
    workload = workloads(sidecar)["runner"]
    pod = Pod(workload.labels)
    assert may_connect(sidecar, CLIENT, pod, 50052)
    ports = {port["name"]: port["containerPort"] for port in workload.container("daemon")["ports"]}
    assert ports == {"health-daemon": 50061, "metrics-daemon": 9464}
    assert not any(may_connect(sidecar, CLIENT, pod, port) for port in ports.values())


def test_the_health_ports_are_for_the_kubelet_alone(manifests: list[Manifest]) -> None:
    """It asks from the pod's node, which policies let through; no pod may, and no Service leads there."""
    pods = [Pod(each.labels) for each in workloads(manifests).values()]
    sources = [*pods, CLIENT, OWN_RUNNER, STRANGER, SCRAPER]
    for port in HEALTH_PORTS.values():
        assert not any(may_enter(manifests, source, target, port) for source in sources for target in pods)
    led_to = {port["port"] for service in of_kind(manifests, "Service") for port in service["spec"]["ports"]}
    assert not led_to & set(HEALTH_PORTS.values())


def test_no_two_ports_of_a_pod_share_a_name_or_a_number(manifests: list[Manifest]) -> None:
    for workload in workloads(manifests).values():
        ports = [port for each in workload.containers for port in each.get("ports", ())]
        for key in ("name", "containerPort"):
            assert len({port[key] for port in ports}) == len(ports), workload.name


def test_metrics_are_for_the_namespace_monitoring_alone(replicas: list[Manifest]) -> None:
    for name, port in (("daemon", 9464), ("runner", 9465)):
        pod = Pod(workloads(replicas)[name].labels)
        assert may_connect(replicas, SCRAPER, pod, port)
        assert not any(may_connect(replicas, each, pod, port) for each in (CLIENT, OWN_RUNNER, STRANGER, pod))


def test_the_package_index_is_for_runners_alone_and_off_the_cluster(manifests: list[Manifest]) -> None:
    blocks = [
        (policy["metadata"]["name"], peer["ipBlock"])
        for policy in of_kind(manifests, "NetworkPolicy")
        for rule in policy["spec"].get("egress", ())
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    assert [name for name, _ in blocks] == ["runners-to-package-index"]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(blocks[0][1]["except"])


def selected_by(service: Manifest, workload: Workload) -> bool:
    return selects({"matchLabels": service["spec"]["selector"]}, workload.labels)


def secrets(manifests: list[Manifest]) -> set[str]:
    found = set()
    for workload in workloads(manifests).values():
        for container in workload.containers:
            found |= {volume["secret"]["secretName"] for _, volume in mounts(workload, container) if "secret" in volume}
            for variable in container.get("env", ()):
                if "valueFrom" in variable:
                    found.add(variable["valueFrom"]["secretKeyRef"]["name"])
    return found


def test_no_overlay_is_forgotten() -> None:
    there = sorted(path.name for path in (REPOSITORY / "deploy" / "kustomize" / "overlays").iterdir())
    assert there == sorted(OVERLAYS)
    assert Path(REPOSITORY / "deploy" / "kustomize" / "base" / "kustomization.yaml").is_file()
