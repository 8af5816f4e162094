"""`explain` says every setting and its origin, and which lane a tensor takes, and why no other."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from ferry import Result, run, without_settings, worker

ROOT = Path(__file__).parents[2]
LANES = {"inline", "shm", "remote"}
LARGE = "9437184"
LISTEN = {"SMG_RDMA_LISTEN_IP": "127.0.0.1"}


def explain(command: Path, *args: str | Path, **variables: str) -> Result:
    """Without what this process has of its own settings."""
    return run(command, "explain", *args, env=without_settings(**variables))


def answer(command: Path, *args: str | Path, **variables: str) -> dict[str, Any]:
    result = explain(command, "--json", *args, **variables)
    assert result.code == 0, result.out + result.err
    row = result.row()
    assert set(row) == {"lane", "transport", "reason", "rejected", "settings"}
    for rejected in row["rejected"]:
        assert set(rejected) == {"lane", "reason"}
    # Every lane has its place or its reason.
    assert {row["lane"], *(r["lane"] for r in row["rejected"])} == LANES
    assert len(row["rejected"]) == 2
    return row


def settings(row: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    for setting in row["settings"]:
        assert set(setting) == {"name", "value", "origin"}
    return {s["name"]: (s["value"], s["origin"]) for s in row["settings"]}


def reasons(row: dict[str, Any]) -> dict[str, str]:
    return {r["lane"]: r["reason"] for r in row["rejected"]}


def describe(path: Path, **keys: Any) -> Path:
    path.write_text(json.dumps(keys))
    return path


def this_host() -> dict[str, Any]:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {
        "boot_id": boot_id,
        "uid": os.getuid(),
        "shm_namespace": f"{boot_id}:{Path('/dev/shm').stat().st_dev}",
    }


def ours(path: Path, **keys: Any) -> Path:
    """A worker of ours, on this host."""
    return describe(
        path,
        **{
            "lanes": ["inline", "shm", "remote"],
            "transports": ["grpc", "local", "file", "tcp"],
            "landing_bytes": 1 << 30,
            "descriptor_versions": [1],
            "host": this_host(),
            **keys,
        },
    )


def test_every_setting_and_its_origin(command: Path, tmp_path: Path) -> None:
    config = describe(tmp_path / "config.json", landing_wait_s=10, read_timeout_s="5", log_mm_timing=True)
    row = answer(
        command,
        "--config",
        config,
        "--multimodal-shm-min-bytes",
        "7",
        "--rdma-slot-ttl-s=16",
        SMG_MM_TENSOR_TRANSPORT=" AUTO ",
        SMG_RDMA_POOL_SLOTS="3",
        SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE="half",
    )
    found = settings(row)
    documented = re.findall(
        r"^\| `(\w+)` \| (?:both|gateway|worker) \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE
    )
    assert list(found) == documented
    assert found["mode"] == ("auto", "environment SMG_MM_TENSOR_TRANSPORT")
    assert found["shm_min_bytes"] == (7, "flag")
    assert found["landing_wait_s"] == (10, "config")
    assert found["read_timeout_s"] == (5, "config")
    assert found["log_mm_timing"] == (True, "config")
    assert found["hold_s"] == (15, "derived")
    assert found["slot_ttl_s"] == (16, "flag")
    assert found["pool_slots"] == (3, "environment SMG_RDMA_POOL_SLOTS")
    assert found["arena_bytes"] == (3 * 33554432, "derived")
    assert found["slot_bytes"] == (33554432, "default")
    assert found["image_dtype"] == ("float16", "environment SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE")
    assert found["vllm_dtype"] == (None, "default")
    assert found["remote_lane"] == (False, "derived")


def test_a_flag_goes_before_the_file_and_that_before_the_environment(command: Path, tmp_path: Path) -> None:
    config = describe(tmp_path / "config.json", mode="shm")
    variable = {"SMG_MM_TENSOR_TRANSPORT": "rdma"}
    for flag in ("--multimodal-tensor-transport", "--lane"):
        row = answer(command, "--config", config, flag, "auto", **variable)
        assert settings(row)["mode"] == ("auto", "flag")
    assert settings(answer(command, "--config", config, **variable))["mode"] == ("shm", "config")
    assert settings(answer(command, **variable))["mode"] == ("remote", "environment SMG_MM_TENSOR_TRANSPORT")
    assert settings(answer(command))["mode"] == ("inline", "default")


def test_an_older_name_is_warned_of_once_and_both_are_named(command: Path) -> None:
    result = explain(command, "--json", SMG_TOKENSPEED_MM_TENSOR_TRANSPORT="auto")
    assert result.code == 0
    assert len(result.err.splitlines()) == 1
    assert "SMG_TOKENSPEED_MM_TENSOR_TRANSPORT" in result.err
    assert "SMG_MM_TENSOR_TRANSPORT " in result.err


@pytest.mark.parametrize(
    ("variable", "value", "form"),
    [
        ("SMG_MM_TENSOR_TRANSPORT", "fast", "inline, shm, auto, remote or rdma"),
        ("SMG_RDMA_SLOT_BYTES", "33_554_432", "a whole number"),
        ("SMG_RDMA_LANDING_SLOTS", "0", "from 1"),
        ("SMG_RDMA_LISTEN_PORT", "65536", "1 to 65535"),
        ("SMG_MM_PIXEL_RDMA", "maybe", "1/true/yes/on"),
    ],
)
def test_what_is_wrong_is_refused_loudly(command: Path, variable: str, value: str, form: str) -> None:
    result = explain(command, "--json", **{variable: value})
    assert result.code == 2
    for needle in (variable, value, form):
        assert needle in result.err
    assert result.row()["code"] == "bad_option"


def test_usage_errors_exit_with_2(command: Path, tmp_path: Path) -> None:
    for args in (
        ["--multimodal-tensor-transport", "fast"],
        ["--rdma-listen-port", "0"],
        ["--engine-proto", "other"],
        ["--modality", "smell"],
        ["--tensor", "third"],
        ["--nbytes", "1k"],
        ["--engine", "pigeon"],
        ["--no-such-flag"],
        ["--lane", "shm", "--multimodal-tensor-transport", "shm"],
        ["--config", str(describe(tmp_path / "config.json", no_such_setting=1))],
        ["--config", str(tmp_path / "missing.json")],
        ["--worker-info", str(describe(tmp_path / "info.json", lane="shm"))],
        ["--worker-info", str(describe(tmp_path / "mode.json", multimodal_tensor_transport="fast"))],
        ["--worker", "127.0.0.1:1", "--worker-info", str(tmp_path / "info.json")],
    ):
        result = explain(command, *args)
        assert result.code == 2, args
        assert result.out == "", args
        assert result.err, args


def test_help_has_an_example(command: Path) -> None:
    result = explain(command, "--help")
    assert result.code == 0
    assert "Example:\n  tensorferry explain" in result.out
    assert "--multimodal-tensor-transport" in result.out


def test_a_worker_that_advertises_nothing(command: Path) -> None:
    row = answer(command, "--lane", "auto", "--nbytes", LARGE, SMG_MM_PIXEL_RDMA="1", **LISTEN)
    assert (row["lane"], row["transport"], row["reason"]) == ("inline", "grpc", "other_host")
    assert reasons(row) == {"shm": "other_host", "remote": "not_advertised"}


def test_every_lane_has_its_place_or_its_reason(command: Path, tmp_path: Path) -> None:
    info = ours(tmp_path / "info.json")
    on = {"SMG_MM_PIXEL_RDMA": "1", **LISTEN}

    def lane(*args: str, **variables: str) -> tuple[str, dict[str, str]]:
        row = answer(command, "--worker-info", info, "--nbytes", LARGE, *args, **variables)
        return row["lane"], reasons(row)

    assert lane() == ("inline", {"shm": "mode", "remote": "mode"})
    assert lane("--lane", "auto", **on) == ("shm", {"remote": "outranked", "inline": "outranked"})
    assert lane("--lane", "auto") == ("shm", {"remote": "lane_off", "inline": "outranked"})
    assert lane("--lane", "rdma", **on) == ("remote", {"shm": "outranked", "inline": "outranked"})
    side = lane("--lane", "rdma", "--tensor", "side", **on)
    assert side == ("inline", {"shm": "side_tensor", "remote": "side_tensor"})
    other = lane("--lane", "auto", "--engine-proto", "sglang", **on)
    assert other == ("inline", {"shm": "engine", "remote": "engine"})


def test_sizes(command: Path, tmp_path: Path) -> None:
    info = ours(tmp_path / "info.json", landing_bytes=1 << 20)
    args: list[str | Path] = ["--lane", "remote", "--worker-info", info]
    row = answer(command, *args, "--nbytes", "65535", **LISTEN)
    assert (row["lane"], row["reason"]) == ("inline", "below_minimum")
    assert answer(command, *args, "--nbytes", "65536", **LISTEN)["lane"] == "remote"
    row = answer(command, *args, "--nbytes", str((1 << 20) + 1), **LISTEN)
    assert (row["lane"], row["reason"]) == ("shm", "over_landing")


def test_either_spelling_turns_lane_remote_on(command: Path, tmp_path: Path) -> None:
    info = ours(tmp_path / "info.json")
    for args, variables in (
        (["--mm-pixel-rdma"], {}),
        (["--multimodal-tensor-transport", "rdma"], {}),
        (["--lane", "remote"], {}),
        ([], {"SMG_MM_PIXEL_RDMA": "Yes"}),
        ([], {"SMG_MM_TENSOR_TRANSPORT": "rdma"}),
        ([], {"SMG_TOKENSPEED_MM_TENSOR_TRANSPORT": "rdma"}),
        (["--mm-pixel-rdma=false"], {"SMG_MM_PIXEL_RDMA": "1"}),
    ):
        row = answer(command, "--worker-info", info, *args, "--rdma-listen-ip", "127.0.0.1", **variables)
        assert (row["lane"], row["transport"]) == ("remote", "tcp"), (args, variables)
        assert settings(row)["remote_lane"] == (True, "derived")


def test_the_lane_without_an_address_is_said(command: Path, tmp_path: Path) -> None:
    result = explain(command, "--json", "--lane", "rdma", "--worker-info", ours(tmp_path / "info.json"))
    assert result.code == 0
    assert "SMG_RDMA_LISTEN_IP" in result.err
    assert reasons(result.row())["remote"] == "lane_off"


def test_a_stock_worker_gets_no_remote_handle_unless_vouched_for(command: Path) -> None:
    args = ["--lane", "rdma", "--engine", "nixl", "--nbytes", LARGE]
    assert reasons(answer(command, *args, **LISTEN))["remote"] == "not_advertised"
    row = answer(command, *args, "--assume-pull", **LISTEN)
    assert (row["lane"], row["transport"], row["reason"]) == ("remote", "nixl", "assumed")
    row = answer(command, *args, "--assume-pull", "--engine-proto", "vllm", **LISTEN)
    assert (row["lane"], reasons(row)["remote"]) == ("inline", "engine")


def test_what_a_worker_says_of_itself_goes_before_all(command: Path, tmp_path: Path) -> None:
    info = ours(tmp_path / "info.json", multimodal_tensor_transport="inline", multimodal_shm_min_bytes=5)
    row = answer(command, "--lane", "rdma", "--worker-info", info, **LISTEN)
    assert row["lane"] == "inline"
    assert settings(row)["mode"] == ("inline", "worker")
    assert settings(row)["shm_min_bytes"] == (5, "worker")


def test_no_lane_is_a_failure_that_says_why(command: Path, tmp_path: Path) -> None:
    result = explain(command, "--json", "--engine-proto", "vllm", "--modality", "audio")
    assert result.code == 1
    assert (result.row()["lane"], result.row()["transport"]) == (None, None)
    assert result.row()["reason"] == "modality"
    assert "backend vllm does not support audio inputs" in result.err
    info = describe(tmp_path / "info.json", max_inline_bytes=1 << 20)
    result = explain(command, "--json", "--worker-info", info, "--nbytes", LARGE)
    assert result.code == 1
    assert result.row()["reason"] == "over_max_inline"


def test_a_worker_is_asked(command: Path) -> None:
    with worker(command) as running:
        args = ["--worker", running.listen, "--nbytes", LARGE]
        row = answer(command, *args, "--lane", "auto")
        assert (row["lane"], row["transport"]) == ("shm", "local")
        row = answer(command, *args, "--lane", "rdma", **LISTEN)
        assert (row["lane"], row["transport"]) == ("remote", "tcp")
    with worker(command, "--lanes", "inline") as running:
        row = answer(command, "--worker", running.listen, "--lane", "shm", "--engine", "local")
        assert (row["lane"], row["reason"]) == ("inline", "not_advertised")


def test_nobody_there(command: Path) -> None:
    result = explain(command, "--json", "--worker", "127.0.0.1:9")
    assert result.code == 1
    assert "127.0.0.1:9" in result.err
    assert result.row()["code"] == "unreachable"


def test_for_people(command: Path, tmp_path: Path) -> None:
    result = explain(command, "--lane", "auto", "--worker-info", ours(tmp_path / "info.json"), "--nbytes", LARGE)
    assert result.code == 0
    assert re.search(r"^mode +auto +flag$", result.out, re.MULTILINE)
    assert "lane shm over local: preferred: " in result.out
    assert "not remote: lane_off: " in result.out
    assert "SMG_MM_PIXEL_RDMA=1" in result.out
