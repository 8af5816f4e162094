"""What all Python tests share: the command under test, and stacks when a test hangs.

A test that takes longer than its timeout (pyproject.toml, or @pytest.mark.timeout) fails, after the stacks of this
process and of all that it started were printed; what it started is killed.
"""

import faulthandler
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import with_stacks


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--command", type=Path, help="the command `tensorferry` to test; ./dev build prints it")


def pytest_configure() -> None:
    # A shell without job control starts what runs beside it deaf to Ctrl-C, and so would be all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def command(request: pytest.FixtureRequest) -> Path:
    path: Path | None = request.config.getoption("--command")
    if path is None or not path.exists():
        pytest.fail(
            f"--command {path}: no such file; run ./dev test, or give what ./dev build prints",
            pytrace=False,
        )
    return path.resolve()  # tests run it from other folders


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    capture = item.config.pluginmanager.getplugin("capturemanager")

    def on_alarm(_signal: int, _frame: FrameType | None) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{item.nodeid}: not done after {settings.timeout:g} s", flush=True)
            faulthandler.dump_traceback(sys.stderr)
            print(with_stacks.dump_stacks(with_stacks.descendants(os.getpid())), flush=True)
        with_stacks.kill_descendants(os.getpid())
        pytest.fail(f"not done after {settings.timeout:g} s; the stacks are printed above")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    del item
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True
