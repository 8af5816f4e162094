"""Files under /dev/shm, as SMG's gateways and workers share them: to and from stock ends, and what goes wrong."""

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from ferry import Running, run, worker
from private_shm import NOBODY, PrivateShm, private_shm
from smg import Hold, StockWorker, encode, encode_request, error_of, read_as_stock, shm_namespace

NBYTES = 1 << 20
STOCK_NAME = "smg-tokenspeed-7-1700000000000000000-0"


@pytest.fixture
def shm() -> Iterator[PrivateShm]:
    with private_shm() as private:
        yield private


@pytest.fixture
def array(tmp_path: Path) -> Path:
    return make_array(tmp_path, NBYTES)


def make_array(folder: Path, nbytes: int) -> Path:
    path = folder / f"{nbytes}.npy"
    np.save(path, np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8))
    return path


def digest(array: Path) -> str:
    return hashlib.sha256(np.load(array).tobytes()).hexdigest()


def send_args(to: str, array: Path) -> list[str | Path]:
    return ["send", "--json", "--to", to, "--lane", "shm", array]


def sending(command: Path, to: str, array: Path, prefix: list[str]) -> Running:
    return Running(command, *send_args(to, array), prefix=prefix)


def take_anything(_tensor: Any) -> None:
    """A stock worker that looks at nothing."""


# Our own ends.


@pytest.mark.parametrize("nbytes", [0, 1, NBYTES, (100 << 20) + 1])
def test_our_ends_can_use_files_too(command: Path, tmp_path: Path, shm: PrivateShm, nbytes: int) -> None:
    array = make_array(tmp_path, nbytes)
    with worker(command, prefix=shm.prefix) as running:
        result = run(command, *send_args(running.listen, array), "--shm-transport", "file", prefix=shm.prefix)
        assert result.code == 0, result.out + result.err
        row = result.row()
        assert (row["lane"], row["transport"], row["reason"]) == ("shm", "file", "mode")
        assert row["verified"] is True
        assert row["sha256"] == digest(array)
        received = running.next()
        assert (received["lane"], received["transport"]) == ("shm", "file")
        assert received["sha256"] == digest(array)
        assert shm.names() == []


def test_our_ends_map_memory_when_nothing_else_is_said(command: Path, array: Path, shm: PrivateShm) -> None:
    with worker(command, prefix=shm.prefix) as running:
        assert run(command, *send_args(running.listen, array), prefix=shm.prefix).row()["transport"] == "local"


def test_eight_at_a_time(command: Path, array: Path, shm: PrivateShm) -> None:
    with worker(command, prefix=shm.prefix) as running:
        args = [*send_args(running.listen, array), "--repeat", "8", "--concurrency", "8"]
        rows = run(command, *args, "--shm-transport", "file", prefix=shm.prefix).rows()
        assert [(r["transport"], r["verified"]) for r in rows] == [("file", True)] * 8
        assert shm.names() == []


def test_a_worker_without_the_lane_reads_no_files(command: Path, array: Path, shm: PrivateShm) -> None:
    with worker(command, "--lanes", "inline,remote", prefix=shm.prefix) as running:
        (shm.path / STOCK_NAME).write_bytes(bytes(5))
        code, text = refusal(running.listen, STOCK_NAME, 5)
        assert code == grpc.StatusCode.INTERNAL
        assert "reads none" in text
        assert shm.names() == [STOCK_NAME]
        result = run(command, *send_args(running.listen, array), "--shm-transport", "file", prefix=shm.prefix)
        assert result.code == 1
        assert "not_advertised" in result.err


def test_a_worker_with_another_shm_is_sent_no_file(command: Path, array: Path, shm: PrivateShm) -> None:
    with worker(command) as running:
        args = [*send_args(running.listen, array), "--shm-transport", "file"]
        result = run(command, *args, prefix=shm.prefix)
        assert result.code == 1
        assert "other_host" in result.err
        (row,) = run(command, *args, "--allow-fallback", prefix=shm.prefix).rows()
        assert row["lane"] == "inline"


# A stock worker.


def test_a_stock_worker_gets_a_file(command: Path, array: Path, shm: PrivateShm) -> None:
    seen: list[Any] = []

    def handle(tensor: Any) -> None:
        (name,) = shm.names()
        info = (shm.path / name).stat()
        sha256 = hashlib.sha256(read_as_stock(tensor, shm.path)).hexdigest()
        seen.append((name, info.st_mode & 0o7777, info.st_nlink, tensor, sha256))

    with StockWorker(handle) as stock:
        result = run(command, *send_args(stock.listen, array), prefix=shm.prefix)
        assert result.code == 0, result.err
        row = result.row()
        assert (row["lane"], row["transport"], row["verified"]) == ("shm", "file", None)
        ((name, mode, links, tensor, sha256),) = seen
        assert sha256 == row["sha256"] == digest(array)
        assert (mode, links) == (0o600, 1)
        assert tensor.shm.name == name
        assert (tensor.shm.offset, tensor.shm.nbytes) == (0, NBYTES)
        pid = name.split("-")[2]
        assert tensor.shm.owner_id == f"smg:{pid}"
        assert (list(tensor.shape), tensor.dtype) == ([NBYTES], "uint8")
        assert shm.names() == []


def test_every_request_has_a_file_of_its_own(command: Path, array: Path, shm: PrivateShm) -> None:
    names = []

    def handle(tensor: Any) -> None:
        names.append(tensor.shm.name)
        read_as_stock(tensor, shm.path)

    with StockWorker(handle) as stock:
        args = [*send_args(stock.listen, array), "--repeat", "20", "--concurrency", "4"]
        assert run(command, *args, prefix=shm.prefix).code == 0
        assert len(set(names)) == 20
        assert shm.names() == []


def test_auto_sends_no_file_to_a_stock_worker_that_nobody_vouches_for(
    command: Path, array: Path, shm: PrivateShm
) -> None:
    with StockWorker(take_anything) as stock:
        (row,) = run(command, "send", "--json", "--to", stock.listen, array, prefix=shm.prefix).rows()
        assert (row["lane"], row["reason"]) == ("inline", "other_host")


@pytest.mark.parametrize("scheduler", ["tokenspeed", "vllm"])
def test_auto_sends_a_file_to_a_stock_worker_that_says_which_shm_it_sees(
    command: Path, array: Path, shm: PrivateShm, scheduler: str
) -> None:
    def handle(tensor: Any) -> None:
        assert hashlib.sha256(read_as_stock(tensor, shm.path)).hexdigest() == digest(array)

    with StockWorker(handle, scheduler=scheduler, namespace=shm_namespace(shm.path)) as stock:
        (row,) = run(command, "send", "--json", "--to", stock.listen, array, prefix=shm.prefix).rows()
        assert (row["lane"], row["transport"], row["reason"]) == ("shm", "file", "preferred")
        explained = run(
            command, "explain", "--json", "--lane", "auto", "--worker", stock.listen, prefix=shm.prefix
        ).row()
        assert (explained["lane"], explained["transport"]) == ("shm", "file")
    with StockWorker(take_anything, scheduler=scheduler, namespace=shm_namespace()) as stock:
        (row,) = run(command, "send", "--json", "--to", stock.listen, array, prefix=shm.prefix).rows()
        assert (row["lane"], row["reason"]) == ("inline", "other_host")


def test_a_stock_worker_of_another_user_is_found_out_before(command: Path, array: Path, shm: PrivateShm) -> None:
    with StockWorker(take_anything, uid=NOBODY) as stock:
        result = run(command, *send_args(stock.listen, array), prefix=shm.prefix)
        assert result.code == 1
        assert "uid_differs" in result.err
        assert str(NOBODY) in result.err
        (row,) = run(command, *send_args(stock.listen, array), "--allow-fallback", prefix=shm.prefix).rows()
        assert (row["lane"], row["reason"]) == ("inline", "uid_differs")


def test_a_worker_that_fails_without_reading_leaves_nothing(command: Path, array: Path, shm: PrivateShm) -> None:
    def handle(_tensor: Any) -> None:
        assert len(shm.names()) == 1
        raise RuntimeError("no")

    with StockWorker(handle) as stock:
        assert run(command, *send_args(stock.listen, array), prefix=shm.prefix).code == 1
        assert shm.names() == []


def test_a_worker_that_never_reads_leaves_nothing(command: Path, array: Path, shm: PrivateShm) -> None:
    hold = Hold()
    with StockWorker(hold) as stock:
        result = run(command, *send_args(stock.listen, array), "--timeout", "0.5", prefix=shm.prefix)
        assert result.code == 1
        assert len(hold.seen) == 1
        assert shm.names() == []
        hold.let_go()


def test_a_worker_that_dies_before_it_read_leaves_nothing(command: Path, array: Path, shm: PrivateShm) -> None:
    hold = Hold()
    with StockWorker(hold) as stock, sending(command, stock.listen, array, shm.prefix) as gateway:
        name = hold.wait().shm.name
        assert shm.names() == [name]
        stock.kill()
        assert gateway.wait() == 1
        assert shm.names() == []
        hold.let_go()


def test_a_gateway_that_is_told_to_end_leaves_nothing(command: Path, array: Path, shm: PrivateShm) -> None:
    hold = Hold()
    with StockWorker(hold) as stock, sending(command, stock.listen, array, shm.prefix) as gateway:
        hold.wait()
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 1
        assert shm.names() == []
        hold.let_go()


# Gateways that die, and those that sweep up after them.


def test_a_killed_gateways_file_goes_with_the_next_gateway(command: Path, array: Path, shm: PrivateShm) -> None:
    hold = Hold()
    with StockWorker(hold) as stock:
        with sending(command, stock.listen, array, shm.prefix) as gateway:
            name = hold.wait().shm.name
            # While it lives, others leave it alone, also while it is stopped.
            sweep(command, array, shm.prefix)
            assert shm.names() == [name]
            gateway.signal(signal.SIGSTOP)
            sweep(command, array, shm.prefix)
            assert shm.names() == [name]
            gateway.signal(signal.SIGKILL)
            gateway.wait()
        assert shm.names() == [name]
        sweep(command, array, shm.prefix)
        assert shm.names() == []
        hold.let_go()


def sweep(command: Path, array: Path, prefix: list[str]) -> None:
    """Another gateway, which comes and goes."""
    with StockWorker(take_anything) as stock:
        result = run(command, *send_args(stock.listen, array), prefix=prefix)
        assert result.code == 0, result.err


@pytest.mark.parametrize("sweeper", ["host", "container"])
@pytest.mark.parametrize("owner", ["host", "container"])
def test_gateways_of_different_pid_namespaces_leave_each_others_files_alone(
    command: Path, array: Path, shm: PrivateShm, owner: str, sweeper: str
) -> None:
    prefixes = {"host": shm.prefix, "container": shm.as_pid_1}
    hold = Hold()
    with StockWorker(hold) as stock:
        with sending(command, stock.listen, array, prefixes[owner]) as gateway:
            name = hold.wait().shm.name
            assert name.startswith("smg-tokenspeed-1-") == (owner == "container")
            sweep(command, array, prefixes[sweeper])
            assert shm.names() == [name]
            gateway.signal(signal.SIGKILL)
            gateway.wait()
        # In two containers both are process 1: that a process of that number lives keeps no orphan.
        deadline = time.monotonic() + 60
        while shm.names() and time.monotonic() < deadline:  # its end may take a moment longer than unshare's
            sweep(command, array, prefixes[sweeper])
        assert shm.names() == []
        hold.let_go()


def test_a_stale_probe_with_the_pid_of_the_gateway(command: Path, array: Path, shm: PrivateShm) -> None:
    for age, name in [(3600, "smg-tokenspeed-probe-1"), (0, "smg-tokenspeed-probe-2")]:
        (shm.path / name).write_bytes(b"x")
        os.utime(shm.path / name, (time.time() - age,) * 2)
    sweep(command, array, shm.as_pid_1)
    assert shm.names() == ["smg-tokenspeed-probe-2"]


def test_stock_gateways_files_are_judged_by_age_and_pid(command: Path, array: Path, shm: PrivateShm) -> None:
    gone = 4194303  # above every pid that is in use here
    mine = os.getpid()
    for age, pid in [(3600, gone), (0, gone), (3600, mine), (0, mine)]:
        name = f"smg-tokenspeed-{pid}-1700000000000000000-{age}"
        (shm.path / name).write_bytes(b"x")
        os.utime(shm.path / name, (time.time() - age,) * 2)
    (shm.path / "psm_other").write_bytes(b"x")
    sweep(command, array, shm.prefix)
    assert shm.names() == sorted(
        [
            "psm_other",
            f"smg-tokenspeed-{gone}-1700000000000000000-0",
            f"smg-tokenspeed-{mine}-1700000000000000000-0",
            f"smg-tokenspeed-{mine}-1700000000000000000-3600",
        ]
    )


def test_a_full_shm_fails_or_falls_back_as_told(command: Path, array: Path) -> None:
    with private_shm("mode=1777,size=256k") as shm, StockWorker(take_anything) as stock:
        result = run(command, *send_args(stock.listen, array), prefix=shm.prefix)
        assert result.code == 1
        assert result.row()["code"] == "no_memory"
        assert f"no room for {NBYTES} bytes in /dev/shm: 262144 of 262144 bytes are free" in result.err
        assert shm.names() == []
        (row,) = run(command, *send_args(stock.listen, array), "--allow-fallback", prefix=shm.prefix).rows()
        assert (row["lane"], row["reason"]) == ("inline", "shm_failed")
        assert shm.names() == []


def test_a_shm_that_may_not_be_written(command: Path, array: Path) -> None:
    with private_shm("mode=1777,ro") as shm, StockWorker(take_anything) as stock:
        result = run(command, *send_args(stock.listen, array), prefix=shm.prefix)
        assert result.code == 1
        assert "shm_failed" in result.err
        (row,) = run(command, *send_args(stock.listen, array), "--allow-fallback", prefix=shm.prefix).rows()
        assert (row["lane"], row["reason"]) == ("inline", "shm_failed")


# A stock gateway, or somebody who says to be one.


def shm_request(name: str, nbytes: int, offset: int = 0, shape: list[int] | None = None) -> object:
    request = encode_request([nbytes] if shape is None else shape)
    handle = request.mm_inputs.items[0].encoder_input.shm
    handle.name, handle.nbytes, handle.offset, handle.owner_id = name, nbytes, offset, "smg:7"
    return request


def refusal(listen: str, name: str, nbytes: int, offset: int = 0, shape: list[int] | None = None) -> tuple[object, str]:
    with pytest.raises(grpc.RpcError) as caught:
        encode(listen, shm_request(name, nbytes, offset, shape))
    return error_of(caught.value)


@pytest.mark.parametrize("slashes", ["", "/", "///"])
def test_a_stock_gateways_file_is_read_and_removed(command: Path, shm: PrivateShm, slashes: str) -> None:
    data = os.urandom(NBYTES)
    with worker(command, prefix=shm.prefix) as running:
        (shm.path / STOCK_NAME).write_bytes(data)
        encode(running.listen, shm_request(slashes + STOCK_NAME, NBYTES))
        received = running.next()
        assert (received["lane"], received["transport"]) == ("shm", "file")
        assert received["sha256"] == hashlib.sha256(data).hexdigest()
        assert shm.names() == []
        code, text = refusal(running.listen, STOCK_NAME, NBYTES)
        assert code == grpc.StatusCode.INTERNAL
        assert "does not exist" in text


def put_nothing(_path: Path) -> None:
    pass


def put_file(path: Path) -> None:
    path.write_bytes(b"12345678")


def put_link(path: Path) -> None:
    (path.parent / "secret").write_bytes(b"12345678")
    path.symlink_to("/dev/shm/secret")


def put_second_name(path: Path) -> None:
    (path.parent / "secret").write_bytes(b"12345678")
    path.hardlink_to(path.parent / "secret")


def put_of_nobody(path: Path) -> None:
    put_file(path)
    os.chown(path, NOBODY, NOBODY)


BAD = grpc.StatusCode.INVALID_ARGUMENT
FAILED = grpc.StatusCode.INTERNAL


@pytest.mark.parametrize(
    ("put", "name", "code", "text"),
    [
        (put_link, STOCK_NAME, FAILED, "symbolic link"),
        (os.mkfifo, STOCK_NAME, FAILED, "not a regular file"),
        (os.mkdir, STOCK_NAME, FAILED, "not a regular file"),
        (put_of_nobody, STOCK_NAME, FAILED, f"belongs to uid {NOBODY}"),
        (put_second_name, STOCK_NAME, FAILED, "has 2 names"),
        (put_nothing, STOCK_NAME, FAILED, "does not exist"),
        (put_file, "secret", BAD, "start with smg-tokenspeed-"),
        (put_file, "", BAD, "empty"),
        (put_file, "..", BAD, "start with"),
        (put_file, "smg-tokenspeed-1/../secret", BAD, "names a path"),
        (put_file, "smg-tokenspeed-1\0", BAD, "NUL"),
    ],
)
def test_only_what_a_gateway_can_have_made_is_opened(
    command: Path, shm: PrivateShm, put: Callable[[Path], None], name: str, code: object, text: str
) -> None:
    with worker(command, prefix=shm.prefix) as running:
        put(shm.path / (name if name in (STOCK_NAME, "secret") else "secret"))
        before = shm.names()
        began = time.monotonic()
        got = refusal(running.listen, name, 8)
        assert time.monotonic() - began < 20  # a FIFO keeps nobody waiting
        assert got[0] == code
        assert text in got[1]
        assert shm.names() == before
        # The worker goes on.
        put_file(shm.path / "smg-tokenspeed-8-1-0")
        encode(running.listen, shm_request("smg-tokenspeed-8-1-0", 8))


@pytest.mark.parametrize(
    ("nbytes", "offset", "shape", "text"),
    [
        (9, 0, None, "has 8 bytes"),
        (8, 1, None, "has 8 bytes"),
        (1, 8, None, "has 8 bytes"),
        (8, 2**63, None, "has 8 bytes"),
        (8, 2**64 - 1, None, "has 8 bytes"),
        (2**40, 0, [2**20, 2**20], "landing"),
        (2**63, 0, [2**31, 2**31, 2], "landing"),
        (7, 0, [8], "7 bytes"),
    ],
)
def test_sizes_are_checked_before_a_byte_is_read(
    command: Path, shm: PrivateShm, nbytes: int, offset: int, shape: list[int] | None, text: str
) -> None:
    with worker(command, prefix=shm.prefix) as running:
        put_file(shm.path / STOCK_NAME)
        _, said = refusal(running.listen, STOCK_NAME, nbytes, offset, shape)
        assert text in said
        assert shm.names() == [STOCK_NAME]


def test_a_file_that_cannot_be_removed_is_a_warning(command: Path) -> None:
    with private_shm("mode=0755") as shm:
        data = os.urandom(NBYTES)
        with worker(shm.for_everyone(command), prefix=shm.as_nobody) as running:
            (shm.path / STOCK_NAME).write_bytes(data)
            os.chown(shm.path / STOCK_NAME, NOBODY, NOBODY)
            encode(running.listen, shm_request(STOCK_NAME, NBYTES))
            assert running.next()["sha256"] == hashlib.sha256(data).hexdigest()
            assert shm.names() == [STOCK_NAME]
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
            assert running.process.stderr is not None
            assert "cannot be removed" in running.process.stderr.read()


def test_a_worker_of_another_user_says_so_before(command: Path, array: Path, shm: PrivateShm) -> None:
    with worker(shm.for_everyone(command), prefix=shm.as_nobody) as running:
        result = run(command, *send_args(running.listen, array), "--shm-transport", "file", prefix=shm.prefix)
        assert result.code == 1
        assert "uid_differs" in result.err
        # And if a gateway does not care, the worker says whose file it is.
        put_file(shm.path / STOCK_NAME)
        (shm.path / STOCK_NAME).chmod(0o600)
        code, text = refusal(running.listen, STOCK_NAME, 8)
        assert code == FAILED
        assert "belongs to uid 0" in text


def test_large_files_one_after_the_other(command: Path, shm: PrivateShm) -> None:
    data = os.urandom(32 << 20)
    with worker(command, prefix=shm.prefix) as running:
        for i in range(8):
            (shm.path / f"smg-tokenspeed-7-1-{i}").write_bytes(data)
        for i in range(8):
            encode(running.listen, shm_request(f"smg-tokenspeed-7-1-{i}", len(data)))
            assert running.next()["nbytes"] == len(data)
        assert shm.names() == []
