"""The wheel in a bare virtual environment, which is then moved."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from shown import ROOT, run_by

import tensorferry

SITE = Path(tensorferry.__file__).parents[1]
WHEEL_DIR = SITE.parent / "wheel"
SMOKE = """
import inspect, os, sys, tempfile
import tensorferry
from tensorferry import Exporter, Puller

assert tensorferry.__file__.startswith(sys.prefix), tensorferry.__file__
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libabsl" in line or "libxxhash" in line}
assert libraries and all(path.startswith(sys.prefix) for path in libraries), libraries
assert not {name for name in sys.modules if name.split(".")[0] in ("numpy", "torch", "google", "grpc")}
assert "landing_bytes" in inspect.signature(Puller).parameters
content = os.urandom(100_000)
with tempfile.TemporaryDirectory() as folder:
    with Exporter(arena_bytes=1 << 20, listen="127.0.0.1:0", local_socket=folder + "/s") as exporter:
        with Puller(landing_bytes=1 << 20) as puller, exporter.export(content, key=7) as lease:
            for shm, transport in ((True, "local"), (False, "tcp")):
                view = puller.pull(lease.handle(shm=shm), key=7)
                assert view.transport == transport
                assert bytes(view) == content
print("version", tensorferry.__version__)
"""


def wheel() -> Path:
    (found,) = WHEEL_DIR.glob("tensorferry-*.whl")
    return found


def test_the_verb_makes_the_wheel() -> None:
    """As the guide shows it; here it is made already."""
    (block,) = run_by(__file__)
    ((line, _),) = block.commands()
    assert line == "./dev wheel"
    done = subprocess.run([ROOT / "dev", "wheel"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(wheel())


def run(*command: str | Path) -> str:
    kept = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    return subprocess.run(
        list(map(str, command)),
        env={"PATH": "/usr/bin:/bin", **kept},
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    ).stdout


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, in another place than where it was made."""
    folder = tmp_path_factory.mktemp("bare")
    run("/usr/bin/python3", "-m", "venv", folder / "here")
    run(folder / "here/bin/pip", "install", "--quiet", "--no-index", "--no-deps", wheel())
    return Path(shutil.move(folder / "here", folder / "there"))


def test_it_runs_in_a_bare_environment_that_was_moved(moved: Path) -> None:
    assert run(moved / "bin/python3", "-W", "error", "-c", SMOKE).split() == ["version", tensorferry.__version__]


def installed(moved: Path, pattern: str) -> Sequence[Path]:
    return sorted(moved.glob(f"lib/python3*/site-packages/tensorferry/{pattern}"))


def test_the_nixl_agent_is_in_the_wheel_and_finds_its_libraries(moved: Path) -> None:
    (agent,) = installed(moved, "bin/tensorferry-nixl-agent")
    assert os.access(agent, os.X_OK)
    for line in run("ldd", agent).splitlines():
        assert "libabsl" not in line or str(moved) in line


def test_the_module_shows_nothing_but_its_init_function(moved: Path) -> None:
    (module,) = installed(moved, "_core.*.so")
    symbols = run("nm", "-D", "--defined-only", module).split("\n")
    assert [line.split()[-1] for line in symbols if line] == ["PyInit__core"]


def test_neither_grpc_nor_protobuf_is_in_it(moved: Path) -> None:
    (module,) = installed(moved, "_core.*.so")
    assert not re.search("grpc|protobuf", run("readelf", "-d", module))
    assert b"google::protobuf" not in module.read_bytes()
    assert not [path for path in installed(moved, "lib/*") if re.search("grpc|protobuf", path.name)]


def test_its_types_are_for_its_users_too(moved: Path) -> None:
    assert installed(moved, "py.typed")
    assert installed(moved, "_core.pyi")
