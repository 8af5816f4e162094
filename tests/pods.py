"""Kubernetes manifests, and Pods made of namespaces: enough of a cluster to run what deploy/kubernetes/ describes.

objects = load(FILE)                                        # of one file
with Pod(template, "10.244.1.7", host, folder, command) as pod:
    ready = pod.start("worker", hosts={}).next()

A container gets a root of its own that it cannot write to, its volumes, a /dev/shm, the Pod's network, its user without
any capability, and the environment and arguments of the manifest. Not played: limits, probes, policies.
"""

import json
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ferry import Running
from hosts import Host

Object = dict[str, Any]

# $0 the new root, $1 the command's folder, $2 where its volumes are, $3 "shared" or "own" pid namespace.
ROOT_SCRIPT = """
mount -t tmpfs -o mode=0755 tmpfs "$0"
for name in bin lib lib64 sbin; do [ ! -e /$name ] || cp -a /$name "$0/"; done
for name in usr etc proc dev; do mkdir "$0/$name"; done
mount --rbind /usr "$0/usr"; mount --rbind /etc "$0/etc"; mount --rbind /dev "$0/dev"
if [ "$3" = own ]; then mount -t proc proc "$0/proc"; else mount --rbind /proc "$0/proc"; fi
mkdir "$0/opt"; mount --bind "$1" "$0/opt"
mount -t tmpfs -o size=64m tmpfs "$0/dev/shm"
mount --bind "$2/hosts" "$0/etc/hosts"
"""


def load(file: Path) -> list[Object]:
    """By Debian's YAML, of which the tests' own Python has none."""
    script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
    with file.open() as manifest:
        done = subprocess.run(["/usr/bin/python3", "-Ic", script], stdin=manifest, stdout=subprocess.PIPE, check=True)
    found: list[Object] = json.loads(done.stdout)
    return found


def pod_template(manifest: Object) -> Object | None:
    """{"metadata", "spec"} of what makes Pods."""
    if manifest["kind"] == "Pod":
        return manifest
    template: Object | None = manifest["spec"].get("template")
    return template


def merged(base: Any, patch: Any) -> Any:
    """A strategic merge: maps by their keys, lists of things with a name by it, everything else replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in patch.items()}}
    named = isinstance(base, list) and all(isinstance(each, dict) and "name" in each for each in [*base, *patch])
    if not named:
        return patch
    by_name = {each["name"]: each for each in base}
    for each in patch:
        by_name[each["name"]] = merged(by_name.get(each["name"]), each)
    return list(by_name.values())


def environment(container: Object, ip: str) -> dict[str, str]:
    fields = {"status.podIP": ip}
    return {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container.get("env", [])
    }


def arguments(container: Object, values: dict[str, str]) -> list[str]:
    words = [*container["command"], *container["args"]]
    for name, value in values.items():
        words = [word.replace(f"$({name})", value) for word in words]
    assert not any("$(" in word for word in words), words
    return words


class Pod:
    def __init__(self, template: Object, ip: str, host: Host, folder: Path, command: Path, files: list[Path]) -> None:
        """`files`: what every configMap of it holds."""
        self.labels = template["metadata"]["labels"]
        self._spec = template["spec"]
        self.ip = ip
        self._host = host
        self._folder = folder
        self._command = command
        self._running = ExitStack()
        for volume in self._spec.get("volumes", []):
            place = folder / volume["name"]
            place.mkdir(parents=True)
            place.chmod(0o777)
            for file in files if "configMap" in volume else []:
                (place / file.name).write_bytes(file.read_bytes())
        (folder / "root").mkdir(parents=True)

    def __enter__(self) -> "Pod":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def start(self, name: str, hosts: dict[str, str]) -> Running:
        (container,) = [each for each in self._spec["containers"] if each["name"] == name]
        (self._folder / "hosts").write_text("".join(f"{ip} {host}\n" for host, ip in hosts.items()))
        context = {**self._spec["securityContext"], **container["securityContext"]}
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        script = "set -eu\n" + ROOT_SCRIPT
        for mount in container.get("volumeMounts", []):
            source, place = self._folder / mount["name"], mount["mountPath"]
            script += f'mkdir -p "$0{place}"; mount --bind {shlex.quote(str(source))} "$0{place}"\n'
        values = environment(container, self.ip)
        words = [f"{name}={value}" for name, value in values.items()] + arguments(container, values)
        user = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"]
        limits = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        script += 'mount -o remount,ro "$0"\n'
        script += 'exec chroot "$0" /usr/bin/' + shlex.join(
            ["setpriv", *user, *limits, "env", "-i", "PATH=/opt:/usr/bin"]
        )
        script += " " + shlex.join(words)
        pids = "shared" if self._spec.get("shareProcessNamespace") else "own"
        own = ["--pid", "--fork", "--kill-child"] if pids == "own" else []
        places = [str(self._folder / "root"), str(self._command.parent), str(self._folder), pids]
        prefix = [*self._host.prefix, "unshare", "--mount", "--propagation", "private", *own]
        return self._running.enter_context(Running(Path("sh"), "-c", script, *places, prefix=prefix))
