"""`inspect` says what a descriptor holds."""

from pathlib import Path

import pytest
from ferry import exporter, make_file, run


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
