"""The config files in the ConfigMaps: taken by the programs, and at one with the manifests around them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from constraintd.config import ENVIRONMENT_PREFIX, Config
from constraintd.serving.addresses import check_exposure
from constraintd.serving.settings import load
from tests.unit.deploy.manifests import KUSTOMIZE, REPOSITORY, Manifest, Workload, mounts, of_kind, render, workloads

# They need kustomize, which is a Go program.
pytestmark = pytest.mark.services

PLACES = {"sidecar": {"daemon": "runner", "runner": "runner"}, "replicas": {"daemon": "daemon", "runner": "runner"}}
MIB = 1 << 20


@pytest.fixture(scope="module", params=PLACES)
def overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def manifests(overlay: str) -> list[Manifest]:
    return render(overlay)


def test_the_daemon_takes_its_file(overlay: str) -> None:
    config = daemon_config(overlay)
    check_exposure(config.listen, tls=False, tokens=True, insecure=config.insecure)
    assert config.tokens_file is not None
    assert config.log_format == "json"


def test_the_runner_takes_its_file(overlay: str) -> None:
    shown = runner_config(overlay)
    assert shown["model"] == "/models/smollm2"
    assert shown["tokens_file"] == "/etc/constraintd-tokens/clients"
    assert shown["log_format"] == "json"


def test_every_file_that_a_config_names_is_mounted_there(overlay: str, manifests: list[Manifest]) -> None:
    named = {
        "daemon": [daemon_config(overlay).tokens_file],
        "runner": [value for key, value in runner_config(overlay).items() if key.endswith(("_file", "_ca"))],
    }
    for program, paths in named.items():
        workload = workloads(manifests)[PLACES[overlay][program]]
        there = files(workload, workload.container(program))
        assert paths
        assert set(paths) <= there, program


def test_each_program_is_started_with_the_file_of_its_config_map(overlay: str, manifests: list[Manifest]) -> None:
    for program, place in PLACES[overlay].items():
        workload = workloads(manifests)[place]
        container = workload.container(program)
        assert container["args"] == ["serve", "--config", f"/etc/constraintd/{program}.toml"]
        volume = dict(mounts(workload, container))["/etc/constraintd"]
        (config_map,) = (
            each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"] == volume["configMap"]["name"]
        )
        assert list(config_map["data"]) == [f"{program}.toml"]


def test_what_a_daemon_listens_on_is_what_its_probes_and_its_neighbours_use(
    overlay: str, manifests: list[Manifest]
) -> None:
    config = daemon_config(overlay)
    ports = ports_of(workloads(manifests)[PLACES[overlay]["daemon"]].container("daemon"))
    assert port_of(config.health_listen) == ports.pop("health")
    assert port_of(config.metrics_listen) == ports.pop("metrics")
    (listen,) = config.listen
    if overlay == "sidecar":
        assert ports == {}
        assert listen.startswith("unix:/")
        assert runner_config(overlay)["daemon"] in (listen, [listen])
    else:
        assert ports == {"grpc": port_of(listen)}


def test_what_a_runner_listens_on_is_what_its_probes_use(overlay: str, manifests: list[Manifest]) -> None:
    config = runner_config(overlay)
    assert ports_of(workloads(manifests)["runner"].container("runner")) == {
        "grpc": port_of(config["listen"]),
        "health": port_of(config["health_listen"]),
        "metrics": port_of(config["metrics_listen"]),
    }


def test_insecure_is_said_only_where_calls_come_over_the_network_without_tls(overlay: str) -> None:
    # Not for the probes: those have a listener of their own, which needs no such word.
    daemon, runner = daemon_config(overlay), runner_config(overlay)
    assert daemon.insecure is (overlay == "replicas")
    assert daemon.tls_cert is None
    assert runner["insecure"] is True
    assert "tls_cert" not in runner


def test_nobody_is_killed_while_he_drains(overlay: str, manifests: list[Manifest]) -> None:
    drains: dict[str, float] = {
        "daemon": daemon_config(overlay).drain_seconds,
        "runner": runner_config(overlay)["drain_seconds"],
        "envoy": 0,
        "valkey": 0,
    }
    for workload in workloads(manifests).values():
        pauses = sum(
            each["lifecycle"]["preStop"]["sleep"]["seconds"] for each in workload.lasting if "lifecycle" in each
        )
        # A sidecar begins to drain when the others have gone: the times add up.
        needed = pauses + sum(drains[each["name"]] for each in workload.lasting)
        assert workload.pod["terminationGracePeriodSeconds"] >= needed + 10, workload.name


def test_a_daemon_s_memory_limit_is_above_what_its_config_allows(overlay: str, manifests: list[Manifest]) -> None:
    limits = daemon_config(overlay).limits
    # The sum of docs/operations.md: the program itself, vocabularies, and what the limits name.
    allowed = (
        300 * MIB
        + 4 * 64 * MIB
        + limits.max_hot_session_bytes
        + limits.max_grammar_cache_bytes
        + limits.max_compilations * limits.max_compile_memory_bytes
    )
    container = workloads(manifests)[PLACES[overlay]["daemon"]].container("daemon")
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert allowed < int(limit.removesuffix("Gi")) << 30


def test_the_store_lies_on_a_volume_of_its_own_or_at_valkey(overlay: str, manifests: list[Manifest]) -> None:
    workload = workloads(manifests)[PLACES[overlay]["daemon"]]
    container = workload.container("daemon")
    if overlay == "sidecar":
        folder = str(PurePosixPath(daemon_config(overlay).store.removeprefix("sqlite:")).parent)
        assert "persistentVolumeClaim" in dict(mounts(workload, container))[folder]
        return
    (store,) = (each["value"] for each in container["env"] if each["name"] == "CONSTRAINTD_STORE")
    address = re.fullmatch(r"redis://:\$\(VALKEY_PASSWORD\)@(\w+):(\d+)/0", store)
    assert address is not None
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "Service")}
    assert services[address[1]]["ports"][0]["port"] == int(address[2])


def test_valkey_writes_every_change_down_and_drops_none() -> None:
    (container,) = workloads(render("replicas"))["valkey"].lasting
    flags = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert flags["--appendonly"] == "yes"
    assert flags["--maxmemory-policy"] == "noeviction"
    assert flags["--maxmemory"] == "1gb"
    assert container["resources"]["limits"]["memory"] == "2Gi"


def test_runners_know_envoy_by_the_name_and_port_of_its_service() -> None:
    manifests = render("replicas")
    (service,) = (each for each in of_kind(manifests, "Service") if each["metadata"]["name"] == "constraintd")
    target = f"constraintd.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    assert runner_config("replicas")["daemon"] in (target, [target])


def test_envoys_config_is_what_the_script_prints_now() -> None:
    folder = KUSTOMIZE / "overlays" / "replicas" / "envoy"
    script = (folder / "render.sh").read_text().split("exec python3 ")[1].replace("\\\n", " ")
    command = [word for word in script.split(">")[0].split() if word]
    printed = subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert (folder / "envoy.yaml").read_text() == printed, "stale: run envoy/render.sh and commit what it writes"


def test_envoy_knows_every_daemon_by_name_and_hashes_by_the_header() -> None:
    manifests = render("replicas")
    envoy = envoy_config()
    (cluster,) = envoy["static_resources"]["clusters"]
    addresses = [
        each["endpoint"]["address"]["socket_address"]
        for each in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    ]
    daemon = workloads(manifests)["daemon"]
    service = daemon.manifest["spec"]["serviceName"]
    assert addresses == [
        {"address": f"daemon-{number}.{service}", "port_value": daemon.ports["grpc"]}
        for number in range(daemon.replicas)
    ]
    assert cluster["lb_policy"] == "RING_HASH"
    assert "header_name: x-constraintd-affinity" in (KUSTOMIZE / "overlays/replicas/envoy/envoy.yaml").read_text()


def test_envoy_listens_where_its_service_and_its_probes_look() -> None:
    (container,) = workloads(render("replicas"))["envoy"].lasting
    listeners = envoy_config()["static_resources"]["listeners"]
    listened = [each["address"]["socket_address"] for each in listeners]
    assert [each["port_value"] for each in listened] == [port["containerPort"] for port in container["ports"]]
    assert {each["address"] for each in listened} == {"0.0.0.0"}
    assert envoy_config()["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
    assert container["args"][container["args"].index("--concurrency") + 1] == container["resources"]["limits"]["cpu"]


def test_envoy_finds_its_certificate_where_it_is_mounted() -> None:
    workload = workloads(render("replicas"))["envoy"]
    (container,) = workload.lasting
    secret = yaml.safe_load((KUSTOMIZE / "overlays/replicas/envoy/tls.yaml").read_text())["resources"][0]
    certificate = secret["tls_certificate"]
    there = files(workload, container)
    assert {certificate["certificate_chain"]["filename"], certificate["private_key"]["filename"]} <= there
    assert certificate["watched_directory"]["path"] in dict(mounts(workload, container))
    assert "path: /etc/envoy/tls.yaml" in (KUSTOMIZE / "overlays/replicas/envoy/envoy.yaml").read_text()


def daemon_config(overlay: str) -> Config:
    path = str(KUSTOMIZE / "overlays" / overlay / "config" / "daemon.toml")
    return load(Config, prefix=ENVIRONMENT_PREFIX, flags={}, environment={}, file=path).config(
        prefix=ENVIRONMENT_PREFIX
    )


def runner_config(overlay: str) -> dict[str, Any]:
    """What the runner itself makes of its file."""
    path = KUSTOMIZE / "overlays" / overlay / "config" / "runner.toml"
    command = [sys.executable, "-m", "constraintd_runner.cli", "config", "show", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


def ports_of(container: Manifest) -> dict[str, int]:
    """What a container's ports are for; in one pod two containers' names differ by "-daemon"."""
    return {port["name"].removesuffix("-daemon"): port["containerPort"] for port in container["ports"]}


def port_of(address: str | None) -> int:
    """Of an address that the kubelet and other pods can reach."""
    assert address is not None
    host, _, port = address.rpartition(":")
    assert host == "0.0.0.0"
    return int(port)


def envoy_config() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((KUSTOMIZE / "overlays/replicas/envoy/envoy.yaml").read_text())
    return config


def files(workload: Workload, container: Manifest) -> set[str]:
    """Every file that a container finds in a Secret's volume."""
    return {
        str(Path(folder) / item["path"])
        for folder, volume in mounts(workload, container)
        if "secret" in volume
        for item in volume["secret"]["items"]
    }
