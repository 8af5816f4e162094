"""deploy/kubernetes/: what the manifests name is there, what belongs together fits, and what they run works.

They are run in Pods made of namespaces (tests/pods.py); there is no cluster here.
"""

import json
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ferry import Event, Running, run
from hosts import two_hosts
from pods import Object, Pod, arguments, environment, load, merged, pod_template
from shown import ROOT, run_by

FOLDER = ROOT / "deploy" / "kubernetes"
PICTURE = ROOT / "tests" / "data" / "grace_hopper.jpg"
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


def manifests() -> list[Object]:
    """All that can be applied by itself, and what the patch makes of its object."""
    found = [each for name in ("one-node", "two-nodes", "network-policy") for each in load(FOLDER / f"{name}.yaml")]
    (patch,) = load(FOLDER / "rdma.yaml")
    same = [each for each in found if all(each[key] == patch[key] for key in ("apiVersion", "kind"))]
    (base,) = [each for each in same if each["metadata"]["name"] == patch["metadata"]["name"]]
    names = {each["name"] for each in base["spec"]["template"]["spec"]["containers"]}
    assert {each["name"] for each in patch["spec"]["template"]["spec"]["containers"]} <= names
    return [*found, merged(base, patch)]


def containers() -> list[tuple[Object, Object]]:
    """(spec of the Pod, container)."""
    templates = [template for each in manifests() if (template := pod_template(each))]
    return [(template["spec"], container) for template in templates for container in template["spec"]["containers"]]


def test_no_manifest_is_left_out() -> None:
    assert {file.stem for file in FOLDER.glob("*")} == {"one-node", "two-nodes", "network-policy", "rdma"}
    assert len(containers()) == 5


def test_versions_and_kinds_belong_together() -> None:
    known = {
        "Pod": "v1",
        "Service": "v1",
        "Deployment": "apps/v1",
        "Job": "batch/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    for each in manifests():
        assert each["apiVersion"] == known[each["kind"]]
        assert each["metadata"]["name"].startswith("tensorferry-")


def test_flags_are_the_commands(command: Path) -> None:
    for _, container in containers():
        program, verb, *words = arguments(container, environment(container, "10.244.0.1"))
        assert program == "tensorferry"
        flags = set(re.findall(r"--[a-z][\w-]*", run(command, verb, "--help").out))
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= flags, (container["name"], used - flags)


def test_variables_are_settings() -> None:
    """Or what the command reads elsewhere, or what the arguments are made of, or UCX's."""
    code = (ROOT / "tools" / "settings.cc").read_text()
    nixl = (ROOT / "docs" / "nixl.md").read_text()
    for _, container in containers():
        for each in container.get("env", []):
            name = each["name"]
            known = f"`{name}`" in SETTINGS or f'getenv("{name}")' in code or f"$({name})" in str(container["args"])
            assert known or (name.startswith("UCX_") and f"`{name}`" in nixl), name


def test_volumes_are_mounted_and_users_are_one() -> None:
    for spec, _ in containers():
        mounted = {mount["name"] for each in spec["containers"] for mount in each.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}
        assert spec["securityContext"]["runAsUser"] == 1000
        assert all("runAsUser" not in each["securityContext"] for each in spec["containers"])


def test_memory_suffices() -> None:
    """Arena and landing memory, and as much again for everything else, within the limit."""
    for _, container in containers():
        limit = container["resources"]["limits"]["memory"]
        values = environment(container, "")
        words = arguments(container, {"POD_IP": ""})
        arena = [int(word.partition("=")[2]) for word in words if word.startswith("--arena-bytes=")]
        landing = int(values.get("SMG_RDMA_SLOT_BYTES", 0)) * int(values.get("SMG_RDMA_LANDING_SLOTS", 0))
        assert arena or landing
        assert 2 * max([*arena, landing]) <= int(limit[:-2]) * UNITS[limit[-2:]]


def test_ports_are_those_that_are_listened_on() -> None:
    everything = manifests()
    listened: dict[str, set[int]] = {}
    for template in filter(None, map(pod_template, everything)):
        for container in template["spec"]["containers"]:
            words = arguments(container, environment(container, "10.244.0.1"))
            ports = {int(port) for word in words for port in re.findall(r"=10\.244\.0\.1:(\d+)$", word)}
            assert ports == {each["containerPort"] for each in container.get("ports", [])}
            listened.setdefault(template["metadata"]["labels"]["app"], set()).update(ports)
            if "readinessProbe" in container:
                assert container["readinessProbe"]["grpc"]["port"] in ports
    for service in (each for each in everything if each["kind"] == "Service"):
        assert {each["port"] for each in service["spec"]["ports"]} <= listened[service["spec"]["selector"]["app"]]


def test_the_policies_let_through_what_is_needed_and_no_more() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in load(FOLDER / "network-policy.yaml")}

    def label(peer: Object) -> str:
        (selector,) = peer.values()
        (value,) = selector["matchLabels"].values()
        return str(value)

    def rules(name: str, way: str, side: str) -> set[tuple[str, int]]:
        assert policies[name]["podSelector"]["matchLabels"] == {"app": name}
        found = policies[name].get(way.lower(), [])
        assert way in policies[name]["policyTypes"]
        return {(label(peer), port["port"]) for rule in found for peer in rule[side] for port in rule["ports"]}

    worker, gateway = "tensorferry-worker", "tensorferry-gateway"
    assert rules(worker, "Ingress", "from") == {(gateway, 50051), ("monitoring", 9464)}
    assert rules(worker, "Egress", "to") == {(gateway, 18515)}
    assert rules(gateway, "Ingress", "from") == {(worker, 18515)}


def sent_by(gateway: Running) -> Event:
    """What it sent, once it has ended well."""
    sent = gateway.next()
    assert gateway.wait() == 0, sent
    return sent


def give(host: str, ip: str) -> None:
    """Another address for its interface."""
    links: Any = json.loads(subprocess.run(["ip", "-n", host, "-j", "link"], check=True, capture_output=True).stdout)
    (device,) = [link["ifname"] for link in links if link["ifname"] != "lo"]
    subprocess.run(["ip", "-n", host, "addr", "add", f"{ip}/16", "dev", device], check=True)


@pytest.fixture
def photo(tmp_path: Path) -> list[Path]:
    """What the configMap of the guide holds."""
    file = tmp_path / "photo.jpg"
    file.write_bytes(PICTURE.read_bytes())
    return [file]


def test_one_node_shares_memory(command: Path, tmp_path: Path, photo: list[Path]) -> None:
    (manifest,) = load(FOLDER / "one-node.yaml")
    with two_hosts() as (host, _), Pod(manifest, "10.83.7.1", host, tmp_path / "pod", command, photo) as pod:
        assert pod.start("worker", {}).next()["lanes"] == ["inline", "shm", "remote"]
        sent = sent_by(pod.start("gateway", {}))
        assert (sent["lane"], sent["transport"], sent["verified"]) == ("shm", "local", True)


def test_two_nodes_go_over_the_network(command: Path, tmp_path: Path, photo: list[Path]) -> None:
    deployment, service, job = load(FOLDER / "two-nodes.yaml")
    worker_ip, gateway_ip = "10.244.1.7", "10.244.2.9"
    with two_hosts() as (a, b), ExitStack() as stack:
        give(a.name, worker_ip)
        give(b.name, gateway_ip)
        template, other = pod_template(deployment), pod_template(job)
        assert template is not None
        assert other is not None
        worker = stack.enter_context(Pod(template, worker_ip, a, tmp_path / "a", command, photo))
        gateway = stack.enter_context(Pod(other, gateway_ip, b, tmp_path / "b", command, photo))
        assert service["spec"]["selector"].items() <= worker.labels.items()
        ready = worker.start("worker", {}).next()
        assert ready["listen"] == f"{worker_ip}:50051"
        assert ready["metrics"] == f"{worker_ip}:9464"
        sent = sent_by(gateway.start("gateway", {service["metadata"]["name"]: worker_ip}))
        assert (sent["lane"], sent["transport"], sent["verified"]) == ("remote", "tcp", True)


def test_the_guide_applies_what_is_run_here() -> None:
    """kubectl's lines: files that there are, objects that they make, and the picture that the Pods mount."""
    names = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in manifests()}
    commands = [line for block in run_by(__file__) for line, _ in block.commands()]
    mounted = {
        volume["configMap"]["name"]
        for spec, _ in containers()
        for volume in spec.get("volumes", [])
        if "configMap" in volume
    }
    seen = set()
    for line in commands:
        program, verb, *words = line.split()
        assert program == "kubectl", line
        if verb == "create":
            assert words == ["configmap", *mounted, "--from-file=photo.jpg"]
        elif verb == "apply":
            assert words[0] == "-f"
            seen.add(Path(words[1]).name)
            assert load(ROOT / words[1])
        elif verb == "patch":
            assert words[2] == "--patch-file"
            (patch,) = load(ROOT / words[3])
            assert words[:2] == [patch["kind"].lower(), patch["metadata"]["name"]]
            seen.add(Path(words[3]).name)
        elif verb in ("logs", "wait"):
            assert next(word for word in words if "/" in word) in names, line
        else:
            raise AssertionError(line)
    assert seen == {file.name for file in FOLDER.glob("*")}
