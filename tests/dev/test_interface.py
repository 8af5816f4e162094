"""The hash by which a program knows a module of engine/ucx that was built from other headers."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = "tensorferry/engine/ucx/ucx_abi.h"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for header in (ROOT / "tensorferry").rglob("*.h"):
        copy = tmp_path / header.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(header, copy)
    return tmp_path


def interface(tree: Path) -> str:
    script = ROOT / "cmake/TensorferryInterface.cmake"
    done = subprocess.run(
        ["cmake", f"-DROOT={tree}", f"-DHEADER={HEADER}", "-P", script], capture_output=True, text=True, check=True
    )
    assert len(done.stderr) == 17, done.stderr
    return done.stderr


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new))


def test_another_order_of_virtual_functions_is_another_interface(tree: Path) -> None:
    before = interface(tree)
    assert before == interface(ROOT), "where the tree lies does not count"
    file = tree / "tensorferry/engine/export_engine.h"
    first, second = (
        "  virtual bool one_sided() const { return false; }\n",
        "  virtual bool preferred() const { return false; }\n",
    )
    # As large as before, and each of them another's place.
    replace(file, first, "?")
    replace(file, second, first)
    replace(file, "?", second)
    assert interface(tree) != before


@pytest.mark.parametrize(
    ("header", "counts"),
    [("base/net.h", True), ("wire/descriptor.h", True), ("metrics/metrics.h", True), ("gateway/sender.h", False)],
)
def test_what_is_included_counts(tree: Path, header: str, counts: bool) -> None:
    before = interface(tree)
    with (tree / "tensorferry" / header).open("a") as file:
        file.write("// more\n")
    assert (interface(tree) != before) == counts
