"""--metrics: what both ends count is what was moved, and a fallback is counted and said."""

import re
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from exposition import Scrape
from ferry import Running, exporter, make_file, pull_arguments, run, worker

ANY = ("--metrics", "127.0.0.1:0")
NBYTES = 200_000
LANES = [("inline", "grpc"), ("shm", "local"), ("shm", "file"), ("remote", "tcp")]
FALLBACK = re.compile(r"tensorferry send: (fallback .*)")


@pytest.fixture
def array(tmp_path: Path) -> Path:
    path = tmp_path / "array.npy"
    np.save(path, np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8))
    return path


def lane_arguments(lane: str, transport: str) -> list[str]:
    return ["--lane", lane, *(["--shm-transport", transport] if lane == "shm" else [])]


def fallbacks(stderr: str) -> list[dict[str, str]]:
    return [dict(pair.split("=", 1) for pair in line.split(" ")[1:]) for line in FALLBACK.findall(stderr)]


@pytest.mark.parametrize(("lane", "transport"), LANES)
def test_both_ends_count_what_was_moved(command: Path, array: Path, lane: str, transport: str) -> None:
    way = {"lane": lane, "transport": transport}
    lanes = lane_arguments(lane, transport)
    with worker(command, *ANY) as running:
        address = running.ready["metrics"]
        done = run(command, "send", "--json", array, "--to", running.listen, "--repeat", "7", *lanes)
        assert done.code == 0, done.err
        at_worker = Scrape(address)
        assert at_worker.get("tensorferry_received_tensors_total", result="ok", **way) == 7
        assert at_worker.get("tensorferry_received_bytes_total", **way) == 7 * NBYTES
        assert at_worker.sum("tensorferry_received_tensors_total") == 7
        if lane != "inline":
            assert at_worker.get("tensorferry_receive_duration_seconds_count", **way) == 7
        if transport in ("local", "tcp"):
            handshake = {"end": "worker", "transport": transport, "result": "ok"}
            assert at_worker.get("tensorferry_handshakes_total", **handshake) == 1
        # Given back by the time that the request was answered.
        assert at_worker.get("tensorferry_borrowed_views") == 0
        assert at_worker.get("tensorferry_landing_bytes", state="used") == 0

        # More than it can print before somebody reads: it is still there when it is asked.
        endless = ["--repeat", "100000", "--arena-bytes", str(64 << 20), *lanes]
        with Running(command, "send", "--json", array, "--to", running.listen, *endless, *ANY) as sending:
            for _ in range(5):
                assert sending.next()["verified"] is True
            at_gateway = Scrape(sending.metrics_on_stderr())
            sent = at_gateway.get("tensorferry_sent_tensors_total", runtime="tokenspeed", result="ok", **way)
            assert sent >= 5
            moved = at_gateway.get("tensorferry_sent_bytes_total", runtime="tokenspeed", result="ok", **way)
            # Asked for in between, a tensor may have been counted and its bytes not yet.
            assert sent - 1 <= moved / NBYTES <= sent + 1
            assert at_gateway.sum("tensorferry_sent_tensors_total") == sent
            assert at_gateway.get("tensorferry_send_duration_seconds_count", **way) >= 4
            built = at_gateway.get("smg_mm_tensors_total", runtime="tokenspeed", path=lane)
            assert sent - 1 <= built <= sent + 1
            assert at_gateway.get("smg_mm_tensor_bytes_total", runtime="tokenspeed", path=lane) >= 5 * NBYTES
            assert at_gateway.sum("tensorferry_arena_bytes") == 64 << 20
            assert at_gateway.get("tensorferry_lease_ends_total", cause="dropped") >= 4
            assert at_gateway.sum("tensorferry_fallbacks_total") == 0
            sending.signal(signal.SIGKILL)


def test_a_full_arena_is_counted_and_said(command: Path, array: Path) -> None:
    # Without files, by which lane shm would do without the arena.
    small = ["--arena-bytes", "4096", "--shm-transport", "local"]
    with worker(command, *ANY) as running:
        done = run(command, "send", "--json", array, "--to", running.listen, "--repeat", "12", *small, *ANY)
        assert done.code == 0, done.err
        assert [row["reason"] for row in done.rows()] == ["arena_full"] * 12
        at_worker = Scrape(running.ready["metrics"])
        assert at_worker.get("tensorferry_received_tensors_total", lane="inline", transport="grpc", result="ok") == 12
        said = fallbacks(done.err)
        assert said
        assert said[0]["suppressed"] == "0"
        assert len(said) + sum(int(line["suppressed"]) for line in said) <= 12
        for line in said:
            assert re.fullmatch(r"encode-[0-9a-f]{32}", line["request"])
            assert line["worker"] == running.listen
            assert (line["from"], line["to"], line["reason"]) == ("shm", "inline", "arena_full")

        endless = ["--repeat", "100000", *small]
        with Running(command, "send", "--json", array, "--to", running.listen, *endless, *ANY) as sending:
            for _ in range(3):
                sending.next()
            at_gateway = Scrape(sending.metrics_on_stderr())
            why = {"from_": "shm", "to": "inline", "reason": "arena_full"}
            assert at_gateway.get("tensorferry_fallbacks_total", **why) >= 3
            assert at_gateway.get("tensorferry_lane_rejections_total", lane="remote", reason="arena_full") >= 3
            assert at_gateway.get("tensorferry_heap_fallbacks_total") >= 3
            sending.signal(signal.SIGKILL)


def test_a_lane_that_is_missing_is_a_fallback_that_is_said(command: Path, array: Path) -> None:
    with worker(command) as running:
        lanes = ["--lane", "remote", "--engine", "local", "--allow-fallback"]
        done = run(command, "send", "--json", array, "--to", running.listen, *lanes)
        assert done.row()["lane"] == "inline"
        (said,) = fallbacks(done.err)
        assert (said["from"], said["to"], said["reason"]) == ("remote", "inline", "lane_off")
        # What the mode does not ask for is none.
        assert not fallbacks(run(command, "send", "--json", array, "--to", running.listen, "--engine", "local").err)


def test_what_a_worker_could_not_fetch_is_counted_at_both_ends(command: Path, array: Path) -> None:
    with worker(command, "--allow", "10.0.0.0/8", *ANY) as running:
        lanes = ["--lane", "remote", "--allow-fallback"]
        done = run(command, "send", "--json", array, "--to", running.listen, *lanes)
        assert done.row()["lane"] == "inline", done.err
        (said,) = fallbacks(done.err)
        assert (said["from"], said["to"], said["reason"]) == ("remote", "inline", "pull_failed")
        assert said["cause"] == "not_allowed"
        at_worker = Scrape(running.ready["metrics"])
        received = "tensorferry_received_tensors_total"
        assert at_worker.get(received, lane="none", transport="none", result="not_allowed") == 1
        assert at_worker.get(received, lane="inline", transport="grpc", result="ok") == 1
        with Running(command, "send", "--json", array, "--to", running.listen, *lanes, "--repeat", "100000", *ANY) as (
            sending
        ):
            for _ in range(2):
                sending.next()
            at_gateway = Scrape(sending.metrics_on_stderr())
            sent = "tensorferry_sent_tensors_total"
            failed = {"runtime": "tokenspeed", "lane": "remote", "transport": "tcp", "result": "not_allowed"}
            assert at_gateway.get(sent, **failed) >= 2
            why = {"from_": "remote", "to": "inline", "reason": "pull_failed"}
            assert at_gateway.get("tensorferry_fallbacks_total", **why) >= 2
            sending.signal(signal.SIGKILL)


def test_an_exporter_shows_its_leases(command: Path, tmp_path: Path) -> None:
    file = make_file(tmp_path / "file", NBYTES)
    with exporter(command, "--arena-bytes", str(8 << 20), *ANY) as running:
        address = running.ready["metrics"]
        assert Scrape(address).get("tensorferry_arena_bytes", state="free") == 8 << 20
        exported = running.ask(f"1 {file}")
        running.ask(f"2 {file}")
        scrape = Scrape(address)
        assert scrape.get("tensorferry_leases", state="published") == 2
        assert scrape.get("tensorferry_arena_bytes", state="used") >= 2 * NBYTES
        assert run(command, *pull_arguments(exported, "--out", tmp_path / "out")).code == 0
        assert running.next()["event"] == "released"
        running.say("cancel 2")
        assert running.next()["event"] == "cancelled"
        scrape = Scrape(address)
        assert scrape.get("tensorferry_lease_ends_total", cause="released") == 1
        assert scrape.get("tensorferry_lease_ends_total", cause="cancelled") == 1
        assert scrape.get("tensorferry_lease_duration_seconds_count") == 2
        assert scrape.get("tensorferry_leases", state="published") == 0
        assert scrape.sum("tensorferry_handshakes_total", end="gateway", result="ok") == 1


def test_metrics_are_served_where_they_are_asked_for(command: Path) -> None:
    with worker(command, "--metrics", "[::1]:0") as running:
        assert re.fullmatch(r"\[::1\]:\d+", running.ready["metrics"])
        assert Scrape(running.ready["metrics"]).get("tensorferry_waiting_pulls") == 0
        assert "tensorferry_landing_bytes" in Scrape(running.ready["metrics"]).names()
    with worker(command, "--metrics", "localhost:0") as running:
        assert "tensorferry_landing_bytes" in Scrape(running.ready["metrics"]).names()
    with worker(command) as running:
        assert "metrics" not in running.ready


def test_a_taken_port_is_a_clear_error(command: Path, array: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        verbs = [
            ["worker", "--listen", "127.0.0.1:0"],
            ["export", "--listen", "127.0.0.1:0"],
            ["send", str(array), "--to", "127.0.0.1:1"],
        ]
        for verb in verbs:
            result = run(command, *verb, "--metrics", address)
            assert result.code == 1, verb
            assert f"--metrics: metrics cannot be served at {address}" in result.err
            assert "(address_in_use)" in result.err
    for wrong in ("nonsense", "127.0.0.1", "127.0.0.1:x"):
        result = run(command, "worker", "--listen", "127.0.0.1:0", "--metrics", wrong)
        assert result.code == 1
        assert "(bad_address)" in result.err
        assert "--metrics" in result.err
