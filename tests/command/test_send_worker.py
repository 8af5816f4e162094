"""`send` and `worker`: real input over every lane, and what happens when that cannot be."""

import hashlib
import os
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
from ferry import Event, Running, make_file, run, worker
from PIL import Image
from safetensors.numpy import load_file, save_file

DATA = Path(__file__).parent.parent / "data"
LANES = [("inline", "grpc"), ("shm", "local"), ("remote", "tcp")]
KEYS = {
    "file",
    "shape",
    "dtype",
    "nbytes",
    "lane",
    "transport",
    "reason",
    "sha256",
    "verified",
    "seconds",
}


def send(command: Path, running: Running, *args: str | Path) -> list[Event]:
    result = run(command, "send", "--json", "--to", running.listen, *args)
    assert result.code == 0, result.out + result.err
    rows = result.rows()
    for row in rows:
        assert set(row) == KEYS
        assert row["verified"] is True
    return rows


@pytest.mark.parametrize(("lane", "transport"), LANES)
def test_photographs_and_arrays_over_every_lane(command: Path, tmp_path: Path, lane: str, transport: str) -> None:
    array = tmp_path / "array.npy"
    np.save(array, np.arange(3 * 1024 * 768, dtype=np.float32).reshape(3, 1024, 768))
    tensors = tmp_path / "tensors.safetensors"
    save_file({"a": np.ones((5, 7), np.float16), "b": np.arange(9, dtype=np.int64)}, tensors)
    files = [DATA / "grace_hopper.jpg", DATA / "astronaut.png", array, tensors]
    with worker(command) as running:
        rows = send(command, running, *files, "--lane", lane)
        assert [(r["lane"], r["transport"]) for r in rows] == [(lane, transport)] * 5
        assert [Path(r["file"].split("#")[0]).name for r in rows[:3]] == [f.name for f in files[:3]]
        received = [running.next() for _ in rows]
        for row in rows:
            match = [r for r in received if r["sha256"] == row["sha256"]]
            assert match
            assert match[0]["lane"] == lane
            assert match[0]["transport"] == transport
            assert match[0]["shape"] == row["shape"]
            assert match[0]["dtype"] == row["dtype"]
            assert match[0]["nbytes"] == row["nbytes"]


@pytest.mark.parametrize(("lane", "transport"), LANES)
@pytest.mark.parametrize("nbytes", [65536, 9 << 20, 100 << 20])
def test_sizes(command: Path, tmp_path: Path, lane: str, transport: str, nbytes: int) -> None:
    array = tmp_path / "array.npy"
    np.save(array, np.random.default_rng(1).integers(0, 256, nbytes, np.uint8))
    with worker(command) as running:
        (row,) = send(command, running, array, "--lane", lane)
        assert row["nbytes"] == nbytes
        assert row["transport"] == transport


def test_what_the_worker_saves_is_what_was_sent(command: Path, tmp_path: Path) -> None:
    array = tmp_path / "array.npy"
    values = np.random.default_rng(1).standard_normal((3, 50, 41)).astype(np.float32)
    np.save(array, values)
    saved = tmp_path / "saved"
    with worker(command, "--save", saved) as running:
        send(command, running, array)
    (file,) = saved.glob("*.safetensors")
    (tensor,) = load_file(file).values()
    np.testing.assert_array_equal(tensor, values)


def bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def test_a_picture_is_decoded_as_promised(command: Path) -> None:
    picture = np.asarray(Image.open(DATA / "astronaut.png").convert("RGB"))
    planar = picture.transpose(2, 0, 1)
    expected = {
        "uint8": planar.tobytes(),
        "float32": (planar.astype(np.float64) / 255).astype(np.float32).tobytes(),
        "float16": (planar.astype(np.float64) / 255).astype(np.float16).tobytes(),
        "bfloat16": bfloat16(planar.astype(np.float64) / 255).tobytes(),
    }
    with worker(command) as running:
        for dtype, raw in expected.items():
            (row,) = send(command, running, DATA / "astronaut.png", "--dtype", dtype)
            assert row["shape"] == [3, *picture.shape[:2]]
            assert row["dtype"] == dtype
            assert row["sha256"] == hashlib.sha256(raw).hexdigest(), dtype
        (row,) = send(command, running, DATA / "astronaut.png")
        assert row["dtype"] == "bfloat16"


def test_kinds_of_pictures(command: Path, tmp_path: Path) -> None:
    color = Image.open(DATA / "astronaut.png").convert("RGB").resize((37, 23))
    gray = color.convert("L")
    palette = color.quantize(64)
    alpha = color.copy()
    alpha.putalpha(gray)
    deep = Image.fromarray((np.asarray(gray).astype(np.uint16) * 257 + 3).astype(np.uint16))
    cases = {
        "gray.png": (gray, np.repeat(np.asarray(gray)[None], 3, 0)),
        "palette.png": (palette, np.asarray(palette.convert("RGB")).transpose(2, 0, 1)),
        "alpha.png": (alpha, np.asarray(color).transpose(2, 0, 1)),
        "deep.png": (deep, np.repeat((np.asarray(deep) >> 8).astype(np.uint8)[None], 3, 0)),
    }
    with worker(command) as running:
        for name, (image, expected) in cases.items():
            image.save(tmp_path / name)
            (row,) = send(command, running, tmp_path / name, "--dtype", "uint8")
            assert row["shape"] == [3, 23, 37], name
            assert row["sha256"] == hashlib.sha256(expected.tobytes()).hexdigest(), name


def test_odd_arrays_are_right_or_refused(command: Path, tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    right: dict[str, np.ndarray] = {
        "fortran": np.asfortranarray(values),
        "big_endian": values.astype(">f4"),
        "empty": np.zeros((3, 0, 5), np.float32),
        "scalar": np.array(3.5, np.float32),
        "uint32": np.arange(7, dtype=np.uint32),
    }
    with worker(command) as running:
        for lane, _ in LANES:
            for name, array in right.items():
                np.save(tmp_path / f"{name}.npy", array)
                (row,) = send(command, running, tmp_path / f"{name}.npy", "--lane", lane)
                native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
                assert row["shape"] == list(np.shape(array)), name
                assert row["sha256"] == hashlib.sha256(native.tobytes()).hexdigest(), name
        for name, array in {
            "complex": np.zeros(3, np.complex64),
            "text": np.array(["a", "b"]),
            "double": np.zeros(3, np.float64),
        }.items():
            np.save(tmp_path / f"{name}.npy", array)
            result = run(command, "send", "--to", running.listen, tmp_path / f"{name}.npy")
            assert result.code == 1, name
            assert f"{name}.npy" in result.err
            assert "dtype" in result.err


def test_one_bad_file_loses_no_other(command: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.png"
    truncated.write_bytes((DATA / "astronaut.png").read_bytes()[:5000])
    text = tmp_path / "text.txt"
    text.write_text("not a picture")
    lying = tmp_path / "lying.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99]}}'
    lying.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    bad = [truncated, text, lying, tmp_path / "missing.npy"]
    with worker(command) as running:
        result = run(
            command,
            "send",
            "--json",
            "--to",
            running.listen,
            DATA / "grace_hopper.jpg",
            *bad,
            DATA / "chelsea.png",
        )
        assert result.code == 1
        assert [Path(r["file"]).name for r in result.rows() if r.get("verified")] == [
            "grace_hopper.jpg",
            "chelsea.png",
        ]
        for file in bad:
            assert file.name in result.err


def test_repeat_and_concurrency(command: Path, tmp_path: Path) -> None:
    files = []
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", np.full((i + 1, 100_000), i, np.uint8))
        files.append(tmp_path / f"{i}.npy")
    with worker(command) as running:
        rows = send(command, running, *files, "--repeat", "10", "--concurrency", "16")
        assert len(rows) == 40
        assert len([running.next() for _ in rows]) == 40


def test_a_lane_that_is_off_at_the_worker_fails_or_falls_back_as_told(command: Path) -> None:
    file = DATA / "grace_hopper.jpg"
    with worker(command, "--lanes", "inline") as running:
        for lane in ("shm", "remote"):
            result = run(command, "send", "--to", running.listen, "--lane", lane, file)
            assert result.code == 1
            assert lane in result.err
            (row,) = send(command, running, "--lane", lane, "--allow-fallback", file)
            assert row["lane"] == "inline"
            assert row["reason"]
        (row,) = send(command, running, file)
        assert row["lane"] == "inline"


def test_small_tensors_go_inline_by_themselves_and_by_name_they_do_not(command: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.npy"
    np.save(file, np.zeros(100, np.uint8))
    with worker(command) as running:
        (row,) = send(command, running, file)
        assert row["lane"] == "inline"
        for lane, _ in LANES:
            (row,) = send(command, running, file, "--lane", lane)
            assert row["lane"] == lane


def test_auto_takes_the_best_lane(command: Path) -> None:
    file = DATA / "grace_hopper.jpg"
    with worker(command) as running:
        (row,) = send(command, running, file)
        assert (row["lane"], row["transport"]) == ("shm", "local")
    with worker(command, "--lanes", "inline,remote") as running:
        (row,) = send(command, running, file)
        assert (row["lane"], row["transport"]) == ("remote", "tcp")


def test_a_worker_that_does_not_dial_the_gateway_says_so(command: Path) -> None:
    file = DATA / "grace_hopper.jpg"
    with worker(command, "--allow", "192.0.2.0/24") as running:
        result = run(command, "send", "--to", running.listen, "--lane", "remote", file)
        assert result.code == 1
        assert "not_allowed" in result.err
        assert "127.0.0.1" in result.err
        # A typed failure is sent again, inline, once.
        (row,) = send(command, running, "--lane", "remote", "--allow-fallback", file)
        assert row["lane"] == "inline"
        assert "not_allowed" in row["reason"]


def test_a_tensor_larger_than_the_landing_memory(command: Path, tmp_path: Path) -> None:
    file = tmp_path / "large.npy"
    np.save(file, np.zeros(9 << 20, np.uint8))
    with worker(command, "--landing-bytes", str(4 << 20), "--lanes", "inline,remote") as running:
        result = run(command, "send", "--to", running.listen, "--lane", "remote", file)
        assert result.code == 1
        assert "landing" in result.err
        (row,) = send(command, running, file)
        assert row["lane"] == "inline"


def test_no_worker(command: Path) -> None:
    result = run(command, "send", "--to", "127.0.0.1:9", DATA / "grace_hopper.jpg")
    assert result.code == 1
    assert "127.0.0.1:9" in result.err


def test_a_taken_port(command: Path) -> None:
    with worker(command) as running:
        result = run(command, "worker", "--listen", running.listen)
        assert result.code == 1
        assert running.listen in result.err


def test_sigterm_drains(command: Path) -> None:
    with worker(command) as running:
        send(command, running, DATA / "grace_hopper.jpg")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    with worker(command) as running:
        running.signal(signal.SIGINT)
        assert running.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops(command: Path, number: int) -> None:
    with worker(command) as running:
        running.signal(signal.Signals(number))
        result = run(command, "send", "--to", running.listen, "--timeout", "1", DATA / "grace_hopper.jpg")
        assert result.code == 1
        assert running.listen in result.err
        running.signal(signal.SIGKILL)


def test_a_restarted_worker_is_asked_anew(command: Path) -> None:
    file = DATA / "grace_hopper.jpg"
    listen = "127.0.0.1:0"
    for lanes in ("inline,shm,remote", "inline", "inline,remote"):
        with worker(command, "--listen", listen, "--lanes", lanes) as running:
            listen = running.listen
            (row,) = send(command, running, file)
            assert row["lane"] in lanes


def test_nothing_is_left_behind(command: Path, tmp_path: Path) -> None:
    before = sorted(Path("/dev/shm").iterdir())
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with worker(command) as running:
        result = run(command, "send", "--to", running.listen, DATA / "grace_hopper.jpg", env=env)
        assert result.code == 0, result.err
    assert sorted(Path("/dev/shm").iterdir()) == before
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == []


def test_the_table_for_people(command: Path) -> None:
    with worker(command) as running:
        result = run(command, "send", "--to", running.listen, DATA / "grace_hopper.jpg")
        assert result.code == 0
        assert "grace_hopper.jpg" in result.out
        assert "bfloat16" in result.out
        assert "\r" not in result.out + result.err  # progress is for terminals


def test_standard_grpc_tools_find_their_way(command: Path) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with worker(command) as running, grpc.insecure_channel(running.listen) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert "tokenspeed.grpc.encoder.TokenSpeedEncoder" in services
        assert "tensorferry.v1.Transport" in services


def test_version_and_help(command: Path) -> None:
    version = run(command, "--version")
    assert version.code == 0
    assert version.out.startswith("tensorferry 0.")
    assert run(command, "--help").code == 0
    for verb in ("worker", "send", "export", "pull", "inspect", "doctor"):
        result = run(command, verb, "--help")
        assert result.code == 0
        assert f"tensorferry {verb}" in result.out, verb


def test_usage_errors_exit_with_2(command: Path, tmp_path: Path) -> None:
    file = make_file(tmp_path / "f", 10)
    for args in (
        ["send", str(file)],
        ["send", "--to", "127.0.0.1:1"],
        ["send", "--to", "127.0.0.1:1", "--lane", "pigeon", str(file)],
        ["send", "--to", "127.0.0.1:1", "--dtype", "float8", str(file)],
        ["send", "--to", "127.0.0.1:1", "--repeat", "0", str(file)],
        ["send", "--to", "127.0.0.1:1", "--concurrency", "x", str(file)],
        ["worker", "--listen", "127.0.0.1:0", "--lanes", "pigeon"],
        ["worker", "--listen", "127.0.0.1:0", "--allow", "everybody"],
        ["worker"],
    ):
        result = run(command, *args)
        assert result.code == 2, (args, result.out, result.err)
