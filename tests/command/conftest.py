"""What tests of the command share."""

from pathlib import Path

import pytest


@pytest.fixture
def ucx_module(command: Path) -> Path:
    """Skips loudly where there is none; in CI that skip is a failure."""
    path = command.parent.parent / "lib/tensorferry/libtensorferry_ucx.so"
    if not path.exists():
        pytest.skip("no UCX when this was built: engine ucx is NOT tested here")
    return path
