"""Gateway and worker on two hosts, which here are two network namespaces."""

import signal
import time
from pathlib import Path

import pytest
from ferry import Event, Result, Running, exporter, make_file, pull_arguments, run, sha256, worker
from hosts import cut, two_hosts

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_a_picture_crosses_the_network(command: Path, family: str) -> None:
    with two_hosts() as (gateway, other):
        listen, _ = other.addresses(family)
        _, network = gateway.addresses(family)
        with worker(command, "--listen", listen, "--allow", network, prefix=other.prefix) as running:
            result = run(
                command,
                "send",
                "--json",
                "--to",
                running.listen,
                "--lane",
                "remote",
                DATA / "astronaut.png",
                prefix=gateway.prefix,
            )
            assert result.code == 0, result.err
            assert result.row()["transport"] == "tcp"
            assert result.row()["verified"] is True


def test_by_default_a_worker_dials_only_itself(command: Path) -> None:
    with two_hosts() as (gateway, other):
        with worker(command, "--listen", f"{other.v4}:0", prefix=other.prefix) as running:
            result = run(
                command,
                "send",
                "--to",
                running.listen,
                "--lane",
                "remote",
                DATA / "chelsea.png",
                prefix=gateway.prefix,
            )
            assert result.code == 1
            assert "not_allowed" in result.err
            assert gateway.v4 in result.err


def test_shm_is_not_offered_where_it_cannot_be(command: Path, tmp_path: Path) -> None:
    """The namespaces share a kernel, but not when the worker cannot see the gateway's socket."""
    with two_hosts() as (gateway, other):
        hidden = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount -t tmpfs none "$0" && exec "$@"',
            str(tmp_path),
        ]
        with worker(
            command,
            "--listen",
            f"{other.v4}:0",
            "--allow",
            gateway.network_v4,
            prefix=[*other.prefix, *hidden],
        ) as running:
            result = run(
                command,
                "send",
                "--json",
                "--to",
                running.listen,
                "--local-socket",
                tmp_path / "gateway.sock",
                DATA / "chelsea.png",
                prefix=gateway.prefix,
            )
            assert result.code == 0, result.err
            assert result.row()["lane"] == "remote"


@pytest.mark.parametrize("engine", ["tcp", pytest.param("ucx", marks=pytest.mark.plain_build)])
def test_a_network_that_is_cut_is_a_timeout(
    request: pytest.FixtureRequest, command: Path, tmp_path: Path, engine: str
) -> None:
    options = ["--engine", engine]
    if engine == "ucx":
        request.getfixturevalue("ucx_module")
        options.append("--trusted-network")
    source = make_file(tmp_path / "source", 1 << 20)
    with (
        two_hosts() as (gateway, other),
        exporter(command, "--listen", f"{gateway.v4}:0", *options, prefix=gateway.prefix) as far,
    ):

        def pull(exported: Event, timeout: str) -> Result:
            more = ("--allow", gateway.network_v4, "--timeout", timeout)
            return run(command, *pull_arguments(exported, *options, *more), prefix=other.prefix)

        result = pull(far.ask(f"1 {source}"), "60")
        assert result.code == 0, result.err
        assert result.row()["sha256"] == sha256(source)
        exported = far.ask(f"2 {source}")
        cut(gateway)
        began = time.monotonic()
        answer = pull(exported, "1").row()
        assert answer["code"] in ("timed_out", "unreachable")
        assert answer["retryable"] is True
        assert time.monotonic() - began < 30
        far.signal(signal.SIGKILL)


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_bench_measures_between_two_hosts(command: Path, family: str) -> None:
    with two_hosts() as (gateway, other):
        listen, _ = gateway.addresses(family)
        with Running(command, "bench", "--json", "--serve", listen, prefix=gateway.prefix) as serving:
            peer = serving.next()["listen"]
            few = ["--count", "2", "--warm-up", "1", "--sizes", "64k,3m"]
            for how in (["--engine", "tcp,sockets,grpc"], ["--engine", "tcp", "--rpc"]):
                result = run(command, "bench", "--json", "--peer", peer, *few, *how, prefix=other.prefix)
                assert result.code == 0, result.err
                for row in result.rows():
                    assert row["p50_us"] > 0
                    assert row["clock_error_us"] > 0
