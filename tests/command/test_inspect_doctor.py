"""`inspect` says what a descriptor holds; `doctor` says which lanes work and how to mend the others."""

import signal
from pathlib import Path

import pytest
from ferry import Event, exporter, make_file, run, worker
from hosts import two_hosts

LANES = [("inline", "grpc"), ("shm", "local"), ("remote", "tcp")]


def checks(command: Path, *args: str) -> tuple[int, list[Event]]:
    result = run(command, "doctor", "--json", *args)
    rows: list[Event] = result.row()["checks"]
    for row in rows:
        assert set(row) == {"lane", "transport", "verdict", "cause", "fix"}
        # What is off says why and what to do; what works has nothing to say.
        assert bool(row["cause"]) == bool(row["fix"]) == (row["verdict"] == "off"), row
    assert [(r["lane"], r["transport"]) for r in rows] == LANES
    return result.code, rows


def verdicts(rows: list[Event]) -> dict[str, str]:
    return {row["lane"]: row["verdict"] for row in rows}


def test_a_descriptor_is_explained_and_its_token_kept(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 1000)
    with exporter(command) as gateway:
        exported = gateway.ask(f"42 {source}")
    raw = bytes.fromhex(exported["descriptor"])
    result = run(command, "inspect", exported["descriptor"])
    assert result.code == 0, result.err
    for needle in ("42", "1000", gateway.listen):
        assert needle in result.out
    # magic, version, flags, total, ways and a zero; then instance, lease and generation come before it.
    token = raw[12 + 32 : 12 + 48].hex()
    assert token not in result.out
    assert token not in run(command, "inspect", "--json", exported["descriptor"]).out


@pytest.mark.parametrize(
    ("descriptor", "needle"),
    [
        # Dotted quad, port 18515, key 42.
        ("534d4752444d413100100000557f000001000000000000002a00000000000000534831302e302e302e37", "10.0.0.7"),
        ("534d4752444d4132001000000000000001000000000000002a00000000000000534831302e302e302e37", "unknown_magic"),
        ("5446455252", "TFERRY"),
        ("00", ""),
    ],
)
def test_what_else_a_descriptor_can_be(command: Path, descriptor: str, needle: str) -> None:
    result = run(command, "inspect", descriptor)
    assert result.code == (0 if needle == "10.0.0.7" else 1)
    assert needle in result.out + result.err


def test_a_changed_descriptor_is_none(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 1000)
    with exporter(command) as gateway:
        raw = bytearray.fromhex(gateway.ask(f"1 {source}")["descriptor"])
    raw[30] ^= 1
    result = run(command, "inspect", raw.hex())
    assert result.code == 1
    assert "bad_descriptor" in result.out + result.err


def test_every_lane_works_here(command: Path) -> None:
    code, rows = checks(command)
    assert code == 0
    assert set(verdicts(rows).values()) == {"ok"}


def test_every_lane_works_to_a_worker(command: Path) -> None:
    with worker(command) as running:
        code, rows = checks(command, "--peer", running.listen)
        assert code == 0
        assert set(verdicts(rows).values()) == {"ok"}
        # By a real transfer each.
        assert [running.next()["lane"] for _ in rows] == ["inline", "shm", "remote"]


def test_a_lane_that_the_worker_does_not_take(command: Path) -> None:
    with worker(command, "--lanes", "inline") as running:
        code, rows = checks(command, "--peer", running.listen)
        assert code == 0
        assert verdicts(rows) == {"inline": "ok", "shm": "off", "remote": "off"}
        assert "--lanes" in rows[1]["fix"]


def test_a_worker_that_may_not_dial_us(command: Path) -> None:
    with worker(command, "--allow", "192.0.2.0/24") as running:
        _, rows = checks(command, "--peer", running.listen)
        assert verdicts(rows) == {"inline": "ok", "shm": "ok", "remote": "off"}
        assert "192.0.2.0/24" in rows[2]["cause"]
        assert "--allow" in rows[2]["fix"]


def test_nobody_there(command: Path) -> None:
    code, rows = checks(command, "--peer", "127.0.0.1:9")
    assert code == 1
    assert set(verdicts(rows).values()) == {"off"}
    assert all("127.0.0.1:9" in row["cause"] for row in rows)


def test_a_stopped_worker(command: Path) -> None:
    with worker(command) as running:
        running.signal(signal.SIGSTOP)
        code, rows = checks(command, "--peer", running.listen, "--timeout", "0.5")
        assert code == 1
        assert set(verdicts(rows).values()) == {"off"}
        running.signal(signal.SIGKILL)


def test_across_hosts(command: Path) -> None:
    with two_hosts() as (gateway, other):
        with worker(
            command, "--listen", f"{other.v4}:0", "--allow", gateway.network_v4, prefix=other.prefix
        ) as running:
            result = run(command, "doctor", "--json", "--peer", running.listen, prefix=gateway.prefix)
            assert verdicts(result.row()["checks"])["remote"] == "ok"


def test_for_people(command: Path) -> None:
    result = run(command, "doctor", "--peer", "127.0.0.1:9")
    assert result.code == 1
    assert "cause:" in result.out
    assert "fix:" in result.out
