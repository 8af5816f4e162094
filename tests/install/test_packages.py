"""The Debian packages: what is in them, and that they serve on a bare Debian 12 that has nothing else."""

import json
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ferry import wait_until
from machine import Machine, machine
from shown import run_by

ROOT = Path(__file__).parents[2]
DEBS = ROOT / "build" / "packages"
LIBRARY, DEVELOPMENT, TOOLS, UCX = NAMES = [
    "libtensorferry0.1",
    "libtensorferry-dev",
    "tensorferry",
    "tensorferry-ucx",
]
VERSION = "0.1.0"
PHOTO = ROOT / "tests" / "data" / "grace_hopper.jpg"
EXPECTED = "local 3145728 same\ntcp 3145728 same\n"
SERVICE = "tensorferry-worker.service"
# What of docs/install.md is not typed below, and by what words the stage itself does it, with other folders.
ELSEWHERE = {
    "./dev packages": ("ci/stages.bash", "make_packages && run_pytest build tests/install"),
    "cmake -G Ninja -S . -B build-install -DTENSORFERRY_BUILD_TESTS=OFF -DTENSORFERRY_BUILD_BENCH=OFF": (
        "ci/build.bash",
        "-DTENSORFERRY_BUILD_TESTS=OFF -DTENSORFERRY_BUILD_BENCH=OFF",
    ),
    "ninja -C build-install": ("ci/build.bash", "ninja -C"),
    "cmake --install build-install --prefix /opt/tensorferry": ("tests/install/test_install.py", '"--install"'),
}
SHOWN = [line for block in run_by(__file__) for line, _ in block.commands()]
# As they stand there.
INSTALL, COMPILE, ENABLE, JOURNAL, DISABLE, PURGE = [line for line in SHOWN if line not in ELSEWHERE]

pytestmark = pytest.mark.timeout(900)


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def deb(name: str) -> Path:
    return DEBS / f"{name}_{VERSION}_amd64.deb"


def field(name: str, field: str) -> str:
    return output("dpkg-deb", "--field", deb(name), field).strip()


def files(name: str) -> set[str]:
    listed = re.findall(r"^[-l].* \./(\S+)", output("dpkg-deb", "--contents", deb(name)), re.MULTILINE)
    return {re.sub(r"lib/[^/]*-linux-gnu", "lib/TRIPLET", path) for path in listed}


def test_there_are_these_packages_and_no_other() -> None:
    assert sorted(DEBS.iterdir()) == sorted(map(deb, NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_a_package_says_what_it_is(name: str) -> None:
    assert field(name, "Version") == VERSION
    assert field(name, "Section") == {LIBRARY: "libs", DEVELOPMENT: "libdevel", TOOLS: "net", UCX: "libs"}[name]
    assert re.fullmatch(r".+ <\S+@\S+>", field(name, "Maintainer"))
    assert len(field(name, "Description").splitlines()) >= 2
    assert f"usr/share/doc/{name}/copyright" in files(name)
    assert "Apache-2.0" in output(
        "sh", "-c", f'dpkg-deb --fsys-tarfile "$0" | tar xO ./usr/share/doc/{name}/copyright', deb(name)
    )


def test_each_file_is_where_debian_has_it() -> None:
    libraries = ["libtensorferry", "libtensorferry_grpc", "libtensorferry_prometheus"]
    so = {f"usr/lib/TRIPLET/{library}.so" for library in libraries}
    assert files(LIBRARY) - {f"usr/share/doc/{LIBRARY}/copyright"} == {
        path + version for path in so for version in (".0.1", ".0.1.0")
    }
    development = files(DEVELOPMENT)
    assert so | {f"usr/lib/TRIPLET/{library}.a" for library in libraries} <= development
    assert {"usr/include/tensorferry/exporter/exporter.h", "usr/lib/TRIPLET/pkgconfig/tensorferry.pc"} <= development
    assert files(UCX) == {f"usr/share/doc/{UCX}/copyright", "usr/lib/TRIPLET/tensorferry/libtensorferry_ucx.so"}
    assert {
        "etc/default/tensorferry-worker",
        "usr/bin/tensorferry",
        f"usr/lib/systemd/system/{SERVICE}",
        "usr/libexec/tensorferry/tensorferry-nixl-agent",
        "usr/share/bash-completion/completions/tensorferry",
        "usr/share/tensorferry/alerts.yml",
        "usr/share/tensorferry/dashboard.json",
    } <= files(TOOLS)


def test_a_package_depends_on_what_it_needs() -> None:
    own = f"{LIBRARY} (= {VERSION})"
    needed = {name: field(name, "Depends").split(", ") for name in NAMES}
    assert own in needed[TOOLS]
    assert own in needed[DEVELOPMENT]
    assert own in needed[UCX]
    assert [name for name in NAMES if any("libucx" in entry for entry in needed[name])] == [UCX]
    # By dpkg-shlibdeps, with versions.
    for name, library in [(LIBRARY, "libgrpc++1.51"), (LIBRARY, "libxxhash0"), (TOOLS, "libssl3")]:
        assert any(entry.startswith(f"{library} (>= ") for entry in needed[name]), needed[name]
    # Programs that use the library without them link neither, but it is one package.
    assert "libtensorferry 0.1 libtensorferry0.1 (= 0.1.0)\n" in output("dpkg-deb", "--info", deb(LIBRARY), "shlibs")
    assert output("dpkg-deb", "--info", deb(LIBRARY), "triggers") == "activate-noawait ldconfig\n"


@pytest.mark.parametrize("line", ELSEWHERE)
def test_what_the_guide_shows_is_done_elsewhere(line: str) -> None:
    assert line in SHOWN
    file, words = ELSEWHERE[line]
    assert words in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def bare() -> Iterator[Machine]:
    with machine() as made:
        made.apt("update")
        yield made


def inside(name: str) -> Path:
    """Where a package lies in the machine."""
    return Path("/opt/clone/build/packages") / deb(name).name


@pytest.fixture(scope="module")
def tools(bare: Machine) -> Machine:
    """The machine with library and command, and a photograph to send."""
    bare.copy(PHOTO, "photo.jpg")
    bare.copy(DEBS, "clone/build/packages")
    bare.script(f"cd /opt/clone; {INSTALL}", network=True)
    return bare


@pytest.fixture(scope="module")
def development(tools: Machine) -> Machine:
    """The machine with all packages, a compiler and CMake; our consumers in /opt/consumer."""
    tools.apt("install", inside(DEVELOPMENT), "cmake", "g++", "ninja-build")
    tools.copy(ROOT / "tests" / "install" / "consumer", "consumer")
    return tools


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# $1: what to send, $2: the lane.
PAIR = r"""
exec {events}< <(exec tensorferry worker --json --listen 127.0.0.1:0)
worker=$!
read -r ready <&$events
tensorferry send "$1" --json --to "$(grep -o '127[0-9.:]*' <<<"$ready")" --lane "$2"
read -r received <&$events
echo "$received"
kill -TERM $worker
wait $worker
"""


@pytest.mark.parametrize(("lane", "transport"), [("shm", "local"), ("remote", "tcp"), ("inline", "grpc")])
def test_a_tensor_gets_from_one_process_to_another(tools: Machine, lane: str, transport: str) -> None:
    sent, received = rows(tools.script(PAIR, "/opt/photo.jpg", lane, user="nobody"))
    assert (sent["lane"], sent["transport"], sent["verified"]) == (lane, transport, True)
    assert received["sha256"] == sent["sha256"]


def test_bash_completes_the_command(tools: Machine) -> None:
    loaded = tools.script("source /usr/share/bash-completion/completions/tensorferry; complete -p tensorferry")
    assert "_tensorferry" in loaded


def test_ucx_comes_by_a_package_of_its_own(tools: Machine) -> None:
    without = tools.run("tensorferry", "doctor", "--engine", "tcp,ucx").stdout
    assert re.search(r"remote +ucx +off", without), without
    tools.apt("install", inside(UCX))
    there = tools.run("tensorferry", "doctor", "--engine", "tcp,ucx").stdout
    assert re.search(r"remote +ucx +(ok|degraded)", there), there


def state(tools: Machine, name: str) -> str:
    return tools.run("systemctl", "show", "--value", f"--property={name}", SERVICE).stdout.strip()


def journal(tools: Machine) -> str:
    return tools.script(JOURNAL)


def served(tools: Machine) -> int:
    """How often the service has said that it is ready."""
    return journal(tools).count(" worker at 127.0.0.1:50051 takes")


def test_the_service_rests_until_it_is_started(tools: Machine) -> None:
    assert tools.run("systemctl", "is-enabled", SERVICE, check=False).stdout.strip() == "disabled"
    assert state(tools, "ActiveState") == "inactive"
    assert tools.run("systemd-analyze", "verify", f"/usr/lib/systemd/system/{SERVICE}").stderr == ""


@pytest.fixture
def service(tools: Machine) -> Iterator[Machine]:
    """Enabled and started, as the package leaves its settings."""
    before = served(tools)
    tools.script(ENABLE)
    wait_until(lambda: served(tools) > before, lambda: journal(tools))
    yield tools
    if state(tools, "LoadState") == "loaded":  # where the package is still there
        tools.script(DISABLE)


SEND = ["tensorferry", "send", "/opt/photo.jpg", "--json", "--to", "127.0.0.1:50051"]


@pytest.mark.parametrize(
    ("transport", "arguments"),
    [
        ("local", ["--lane", "shm"]),
        ("file", ["--lane", "shm", "--shm-transport", "file"]),
        ("tcp", ["--lane", "remote"]),
    ],
)
def test_the_service_takes_every_lane_in_its_sandbox(service: Machine, transport: str, arguments: list[str]) -> None:
    (sent,) = rows(service.run(*SEND, *arguments, user="tensorferry").stdout)
    assert (sent["transport"], sent["verified"]) == (transport, True)
    assert not list((service.root / "dev/shm").iterdir())


def test_the_service_shares_memory_with_its_own_user_alone(service: Machine) -> None:
    refused = service.run(*SEND, "--lane", "shm", user="nobody", check=False)
    assert refused.returncode == 1
    assert "uid_differs" in refused.stderr
    (sent,) = rows(service.run(*SEND, "--lane", "remote", user="nobody").stdout)
    assert sent["verified"] is True


def test_the_service_has_what_its_unit_says(service: Machine) -> None:
    pid = state(service, "MainPID")
    status = service.run("cat", f"/proc/{pid}/status", f"/proc/{pid}/limits").stdout
    (uid,) = re.findall(r"^Uid:\t(\d+)", status, re.MULTILINE)
    assert uid == service.run("id", "--user", "tensorferry").stdout.strip() != "0"
    assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    # As much as root may give here.
    (locked,) = re.findall(r"^Max locked memory +(\w+)", status, re.MULTILINE)
    assert state(service, "LimitMEMLOCK") == "infinity"
    assert locked in ("unlimited", str(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    # In its own view of the files: /usr for nobody to write, /dev/shm and the sockets of gateways for all.
    mounts = service.run("cat", f"/proc/{pid}/mounts").stdout
    assert re.search(r"^\S+ / \S+ ro,", mounts, re.MULTILINE)
    assert re.search(r"^\S+ /dev/shm \S+ rw", mounts, re.MULTILINE)


def test_the_service_comes_back_after_a_crash_and_ends_well_when_told(service: Machine) -> None:
    before = served(service)
    service.run("systemctl", "kill", "--signal=KILL", SERVICE)
    wait_until(lambda: served(service) > before, lambda: journal(service))
    assert int(state(service, "NRestarts")) >= 1
    service.run("systemctl", "stop", SERVICE)
    assert (state(service, "Result"), state(service, "ExecMainStatus")) == ("success", "0")


def test_the_service_runs_the_new_command_after_an_upgrade(service: Machine) -> None:
    before, pid = served(service), state(service, "MainPID")
    service.apt("install", "--reinstall", inside(TOOLS))
    wait_until(lambda: served(service) > before, lambda: journal(service))
    assert state(service, "MainPID") not in ("0", pid)
    assert service.run("systemctl", "is-enabled", SERVICE).stdout.strip() == "enabled"


def test_every_variable_of_the_environment_file_is_a_setting() -> None:
    deploy = ROOT / "deploy" / "systemd"
    shown = re.findall(r"^#?([A-Z_]+)=", (deploy / "tensorferry-worker.default").read_text(), re.MULTILINE)
    assert len(shown) == len(set(shown)) >= 8
    (command,) = re.findall(r"^ExecStart=(.*)", (deploy / "tensorferry-worker.service.in").read_text(), re.MULTILINE)
    of_the_unit = set(re.findall(r"\$\{?([A-Z]+)", command))
    settings = (ROOT / "docs" / "settings.md").read_text()
    of_workers = re.findall(r"^\| `\w+` \| (?:both|worker) \|[^|]*\| `([A-Z_]+)`", settings, re.MULTILINE)
    assert set(shown) <= of_the_unit | set(of_workers)
    assert of_the_unit <= set(shown)


def test_the_service_takes_its_settings_from_the_environment_file(service: Machine) -> None:
    """With each of the examples that stand in it."""
    settings = service.root / "etc/default/tensorferry-worker"
    shipped = settings.read_text()
    examples = re.sub(r"^#(?=[A-Z_]+=)", "", shipped, flags=re.MULTILINE)
    try:
        settings.write_text(re.sub(r"^OPTIONS=.*", r"\g<0> --json", examples, flags=re.MULTILINE))
        service.run("systemctl", "restart", SERVICE)

        def ready() -> list[str]:
            return re.findall(r'{"event":"ready".*', journal(service))

        wait_until(lambda: len(ready()) == 1, lambda: journal(service))
        said = json.loads(ready()[0])
        assert (said["listen"], said["serve"], said["metrics"]) == ("127.0.0.1:50051", "vllm", "127.0.0.1:9464")
        assert said["landing_bytes"] == 64 * 33554432
    finally:
        settings.write_text(shipped)


# $1: where to build, the rest: options. Prints what the programs print, and which of our libraries they load.
BUILD = r"""
build=$1
shift
cmake -G Ninja -S /opt/consumer -B "$build" "$@" >"$build.log"
ninja -C "$build" >>"$build.log" || { cat "$build.log" >&2; exit 1; }
"$build/consumer" "$build/socket"
"$build/grpc_consumer"
"$build/metrics_consumer"
ldd "$build"/*consumer | grep -o 'libtensorferry[a-z_.0-9]*' | sort -u || true
"""


def test_cmake_finds_the_shared_library(development: Machine) -> None:
    printed = development.script(BUILD, "/tmp/shared", user="nobody")
    loaded = [f"libtensorferry{part}.so.0.1" for part in ("", "_grpc", "_prometheus")]
    assert printed == EXPECTED + "3 too many dimensions\n127.0.0.1 2\n" + "".join(
        f"{name}\n" for name in sorted(loaded)
    )


def test_cmake_finds_the_static_library_when_asked(development: Machine) -> None:
    printed = development.script(BUILD, "/tmp/static", "-DUSE_STATIC=ON", user="nobody")
    assert printed == EXPECTED + "3 too many dimensions\n127.0.0.1 2\n"


def test_cmake_does_not_mix_the_kinds(development: Machine) -> None:
    project = development.root / "opt/mixed"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(mixed LANGUAGES CXX)\n"
        "find_package(tensorferry CONFIG REQUIRED)\nfind_package(tensorferry CONFIG REQUIRED COMPONENTS static)\n"
    )
    mixed = development.run("cmake", "-G", "Ninja", "-S", "/opt/mixed", "-B", "/tmp/mixed", check=False)
    assert mixed.returncode != 0
    assert "static" in mixed.stderr


def test_pkg_config_finds_the_library(development: Machine) -> None:
    program = "mkdir /tmp/program; cd /tmp/program; cp /opt/consumer/consumer.cc program.cc"
    assert development.script(f"{program}; {COMPILE}; ./a.out /tmp/program/socket", user="nobody") == EXPECTED


def names_of_ours(machine: Machine) -> list[str]:
    """All files but those that we put there to test with."""
    found = machine.run("find", "/", "-xdev", "-iname", "*tensorferry*", "-not", "-path", "/opt/*").stdout
    return found.splitlines()


@pytest.mark.usefixtures("service")
def test_purged_they_leave_nothing(development: Machine) -> None:
    """While the service runs: last, as it takes the machine's packages away."""
    assert names_of_ours(development)
    development.script(PURGE, network=True)
    assert names_of_ours(development) == []
    assert state(development, "ActiveState") == "inactive"
    assert state(development, "LoadState") == "not-found"
    assert development.run("getent", "passwd", "tensorferry", check=False).stdout == ""
    assert development.run("getent", "group", "tensorferry", check=False).stdout == ""
    assert "tensorferry" not in development.run("ldconfig", "--print-cache").stdout
    left = development.run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n").stdout
    assert "tensorferry" not in left
    assert development.run("dpkg", "--audit").stdout == ""
