"""The settings of the C++ library, as its command prints them."""

import subprocess
from pathlib import Path

import pytest

import tensorferry
from tensorferry import InputError, Settings

ENVIRONMENT = {
    "SMG_MM_TENSOR_TRANSPORT": "rdma",
    "SMG_RDMA_LISTEN_IP": "127.0.0.1",
    "SMG_RDMA_LISTEN_PORT": "20000",
    "SMG_RDMA_SLOT_BYTES": "65536",
    "SMG_RDMA_LANDING_SLOTS": "16",
    "SMG_RDMA_POOL_SLOTS": "32",
    "SMG_TOKENSPEED_MM_SHM_MIN_BYTES": "1",
    "TOKENSPEED_UNLINK_MM_SHM_AFTER_READ": "no",
    "SMG_VLLM_ENCODER_INPUT_DTYPE": "bf16",
    "HOME": "/",
}


def test_values_have_types_and_origins() -> None:
    settings = Settings.from_environment(ENVIRONMENT, flags={"rdma-pool-slots": "8"})
    assert len(settings) == len(list(settings)) > 20
    assert (settings["mode"], settings.origin("mode")) == ("remote", "environment SMG_MM_TENSOR_TRANSPORT")
    assert (settings["pool_slots"], settings.origin("pool_slots")) == (8, "flag")
    assert (settings["remote_lane"], settings.origin("remote_lane")) == (True, "derived")
    assert (settings["image_dtype"], settings.origin("image_dtype")) == (None, "default")
    assert (settings["vllm_dtype"], settings["unlink_after_read"]) == ("bfloat16", False)
    assert settings.listen == "127.0.0.1:20000"
    (warning,) = settings.warnings
    assert "SMG_TOKENSPEED_MM_SHM_MIN_BYTES" in warning
    with pytest.raises(KeyError):
        settings["no such setting"]


def test_a_flag_goes_before_the_configuration_before_the_environment() -> None:
    environ = {"SMG_RDMA_READ_TIMEOUT_S": "1"}
    config = {"read_timeout_s": "2"}
    flags = {"rdma-read-timeout-s": "3"}
    for sources, value, origin in (
        (Settings.from_environment(environ), 1, "environment SMG_RDMA_READ_TIMEOUT_S"),
        (Settings.from_environment(environ, config=config), 2, "config"),
        (Settings.from_environment(environ, config=config, flags=flags), 3, "flag"),
    ):
        assert (sources["read_timeout_s"], sources.origin("read_timeout_s")) == (value, origin)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SMG_RDMA_SLOT_BYTES": "32M"}, ("SMG_RDMA_SLOT_BYTES", "32M", "a whole number, from 1")),
        ({"SMG_RDMA_LANDING_SLOTS": "0"}, ("SMG_RDMA_LANDING_SLOTS", '"0"')),
        ({"SMG_MM_PIXEL_RDMA": "maybe"}, ("SMG_MM_PIXEL_RDMA", "maybe")),
    ],
)
def test_what_does_not_parse_is_refused(environ: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as raised:
        Settings.from_environment(environ)
    assert raised.value.reason == "bad_option"
    assert all(word in str(raised.value) for word in words), raised.value


def test_what_is_for_the_other_end_is_not_looked_up() -> None:
    wrong = {"SMG_RDMA_LANDING_SLOTS": "many"}
    assert Settings.from_environment(wrong, end="gateway")["landing_slots"] == 64
    with pytest.raises(InputError, match="many"):
        Settings.from_environment(wrong, end="worker")


def test_an_end_and_names_that_there_are_not() -> None:
    with pytest.raises(InputError, match="gateway, worker, both"):
        Settings.from_environment({}, end="router")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no_such"):
        Settings.from_environment({}, config={"no_such": "1"})
    with pytest.raises(InputError, match="no-such"):
        Settings.from_environment({}, flags={"no-such": "1"})


def test_a_worker_has_its_own() -> None:
    settings = Settings.from_environment(ENVIRONMENT)
    own = settings.for_worker(multimodal_tensor_transport="shm", multimodal_shm_min_bytes="7")
    assert (own["mode"], own.origin("mode")) == ("shm", "worker")
    assert (own["shm_min_bytes"], own.origin("shm_min_bytes")) == (7, "worker")
    assert settings["mode"] == "remote"
    with pytest.raises(InputError, match="pigeon"):
        settings.for_worker(multimodal_tensor_transport="pigeon")


def test_both_ends_are_made_from_them(tmp_path: Path) -> None:
    worker = Settings.from_environment(ENVIRONMENT, end="worker")
    gateway = Settings.from_environment({**ENVIRONMENT, "SMG_RDMA_LISTEN_IP": ""}, end="gateway", finds_address=True)
    assert worker.puller_options() == {"landing_bytes": 16 * 65536, "unlink_shm_files": False}
    assert gateway.exporter_options() == {"arena_bytes": 32 * 65536, "lease_ttl": 210.0, "listen": ""}
    with (
        tensorferry.Puller(**worker.puller_options()) as puller,
        tensorferry.Exporter(**gateway.exporter_options(), local_socket=str(tmp_path / "s")) as exporter,
        exporter.export(b"abc") as lease,
    ):
        assert puller.stats().landing_bytes == 16 * 65536
        assert bytes(puller.pull(lease.handle())) == b"abc"


def test_they_print_as_the_command_does(command: Path) -> None:
    explained = subprocess.run(
        [command, "explain"], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout
    told = str(Settings.from_environment(ENVIRONMENT)).splitlines()
    assert [line.split() for line in explained.splitlines()[: len(told)]] == [line.split() for line in told]
