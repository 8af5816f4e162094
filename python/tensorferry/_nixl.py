"""Where NIXL's libraries may be."""

import sys
from pathlib import Path


def installed_libraries() -> list[str]:
    """The folders of NIXL's wheels on the path of this interpreter."""
    folders = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return [str(found) for folder in folders for found in sorted(folder.glob(".nixl_cu*.mesonpy.libs"))]


def agent_program() -> str:
    """What an exporter that serves NIXL runs beside it."""
    return str(Path(__file__).parent / "bin" / "tensorferry-nixl-agent")
