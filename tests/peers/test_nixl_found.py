"""Where NIXL is looked for, and what happens where it is not: one line, and the other lanes work. Fault 22."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from ferry import Result, make_file, run, worker
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("nixl")

DATA = Path(__file__).parent.parent / "data"


def environment(**changes: str) -> dict[str, str]:
    """Without what would show the way to NIXL."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TENSORFERRY_NIXL_LIB", "VIRTUAL_ENV")}
    return {**kept, "UCX_TLS": "tcp", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **changes}


def pull(command: Path, lease: stock.Lease, *args: str | Path, **env: str) -> Result:
    """Without being told where NIXL is."""
    what = ["--descriptor", lease.descriptor.hex(), "--nbytes", str(lease.nbytes)]
    return run(command, "pull", "--json", "--transport", "nixl", *what, *args, env=environment(**env))


def export(command: Path, *args: str | Path) -> Result:
    return run(command, "export", "--engine", "nixl", "--listen", "127.0.0.1:0", *args, env=environment())


def only_line(result: Result) -> str:
    assert result.code == 1, f"{result.code}\n{result.out}{result.err}"
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    return lines[0]


def test_nixl_is_found_by_option_environment_and_venv(command: Path) -> None:
    with stock.Exporter() as gateway:
        lease = gateway.export(1)
        for args, env in (
            (ours.with_lib(), {}),
            ([], {"TENSORFERRY_NIXL_LIB": str(stock.nixl_lib())}),
            ([], {"VIRTUAL_ENV": str(stock.ROOT / ".peers")}),
            ([], {"PATH": f"{stock.ROOT / '.peers/bin'}:/usr/bin:/bin"}),
            ([], {"LD_LIBRARY_PATH": str(stock.nixl_lib())}),
        ):
            result = pull(command, lease, *args, **env)
            assert result.code == 0, f"{env}\n{result.out}{result.err}"
            assert result.row()["sha256"] == lease.sha256
            lease = gateway.export(lease.key + 1)


def test_a_gateway_without_the_library_says_what_to_install(command: Path) -> None:
    line = only_line(export(command, "--nixl-lib", "/nowhere"))
    assert "/nowhere holds no libnixl_capi.so" in line
    assert "pip install nixl" in line


def test_a_reader_without_the_library_says_what_to_install(command: Path) -> None:
    with stock.Exporter() as gateway:
        lease = gateway.export(1)
        line = only_line(pull(command, lease, "--nixl-lib", "/nowhere"))
        assert "/nowhere holds no libnixl_capi.so" in line
        assert "pip install nixl" in line


def test_a_library_that_is_none_is_one_line(command: Path, tmp_path: Path) -> None:
    make_file(tmp_path / "libnixl_capi.so", 5000)
    line = only_line(export(command, "--nixl-lib", tmp_path))
    assert "cannot load" in line
    assert "pip install nixl" in line


@pytest.fixture
def without_plugin(tmp_path: Path) -> Path:
    """The wheel's libraries, but not the plugin for UCX."""
    wheel = stock.nixl_lib()
    folder = tmp_path / wheel.name
    shutil.copytree(wheel, folder, symlinks=True)
    (folder / "plugins/libplugin_UCX.so").unlink()
    for other in wheel.parent.glob("*.libs"):  # what they are linked to lies beside them
        if other != wheel:
            (tmp_path / other.name).symlink_to(other)
    return folder


def test_a_library_without_its_plugin_is_one_line(command: Path, without_plugin: Path) -> None:
    with stock.Exporter() as gateway:
        for result in (
            export(command, "--nixl-lib", without_plugin),
            pull(command, gateway.export(1), "--nixl-lib", without_plugin),
        ):
            assert result.code == 1, f"{result.code}\n{result.err}"
            ours_says = [line for line in result.err.splitlines() if line.startswith("tensorferry ")]
            assert len(ours_says) == 1, result.err
            assert "no UCX plugin beside" in ours_says[0]
            assert "install NIXL with its plugins" in ours_says[0]


@pytest.mark.parametrize("missing", ["library", "plugin"])
def test_a_worker_without_nixl_serves_the_other_lanes(command: Path, without_plugin: Path, missing: str) -> None:
    lib = Path("/nowhere") if missing == "library" else without_plugin
    with worker(
        command,
        *("--engine", "local,tcp,nixl", "--nixl-lib", lib, "--landing-bytes", str(64 * stock.MIB)),
        prefix=ours.OVER_TCP,
    ) as running:
        for lane, transport in (("shm", "local"), ("remote", "tcp"), ("inline", "grpc")):
            result = run(command, "send", "--json", "--to", running.listen, DATA / "astronaut.png", "--lane", lane)
            assert result.code == 0, result.err
            assert (result.row()["transport"], result.row()["verified"]) == (transport, True)
        # Nor does a gateway need it.
        send: list[str | Path] = ["send", "--json", "--to", running.listen, DATA / "astronaut.png", "--lane", "remote"]
        send += ["--engine", "local,tcp,nixl", "--nixl-lib", lib]
        result = run(command, *send, prefix=ours.OVER_TCP)
        assert result.code == 0, result.err
        assert result.row()["transport"] == "tcp"
        told = [line for line in result.err.splitlines() if line.startswith("tensorferry ")]
        assert len(told) == 1, told
        assert told[0].startswith("tensorferry send: nixl: ")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert running.process.stderr is not None
        said = [line for line in running.process.stderr.read().splitlines() if line.startswith("tensorferry ")]
        assert len(said) == 1, said
        assert "nixl: " in said[0]


def test_a_worker_that_has_read_over_nixl_ends_well(command: Path) -> None:
    """Fault 23, for a worker: also where the host has drivers for verbs."""
    with stock.Exporter() as gateway, ours.worker(command) as running, stock.Caller(running.listen) as caller:
        assert caller.encode_lease(gateway.export(1)) == {"accepted": True}
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_the_doctor_finds_nixl_and_reads_by_it(command: Path) -> None:
    args = ["--json", "--engine", "nixl", *ours.with_lib(), "--require", "remote"]
    result = run(command, "doctor", *args, env=environment())
    assert result.code == 0, result.out + result.err
    rows = {(row["check"], row["direction"]): row for row in result.row()["checks"] if row["transport"] == "nixl"}
    library = rows["nixl_library", "send"]
    assert library["verdict"] == "ok", library
    (wheel,) = stock.nixl_lib().parent.glob("nixl_cu13-*.dist-info")
    version = wheel.stem.partition("-")[2]
    for needle in (f"{stock.nixl_lib()}/libnixl_capi.so", f"version {version},", "symbols", "UCX"):
        assert needle in library["evidence"]
    for direction in ("send", "receive"):
        assert rows["transfer", direction]["verdict"] == "ok", rows["transfer", direction]
    # It says by what UCX reads, also where there is no device.
    assert rows["ucx_device", "send"]["evidence"]


def test_the_doctor_reads_by_nixl_to_a_worker(command: Path) -> None:
    with ours.worker(command) as running:
        result = run(
            command,
            "doctor",
            "--json",
            "--engine",
            "nixl",
            *ours.with_lib(),
            "--peer",
            running.listen,
            env=environment(),
        )
        rows = [row for row in result.row()["checks"] if row["check"] == "transfer" and row["transport"] == "nixl"]
        assert [row["verdict"] for row in rows] == ["ok", "ok"], rows


def test_a_library_without_its_plugin_is_told_of_by_the_doctor(command: Path, without_plugin: Path) -> None:
    result = run(command, "doctor", "--json", "--engine", "nixl", "--nixl-lib", without_plugin, env=environment())
    found = [row for row in result.row()["checks"] if row["check"] == "nixl_library"]
    assert found
    assert all(row["verdict"] == "off" and "no plugin UCX" in row["cause"] for row in found), found
