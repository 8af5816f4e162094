"""What all tests with the stock peers share: that the peers are there, and that they work with each other here."""

from pathlib import Path

import pytest
from ferry import run
from peers import stock


@pytest.fixture(scope="session")
def peers() -> None:
    missing = stock.missing()
    if missing is not None:
        pytest.skip(f"{missing} is missing: SMG's real peers are NOT tested here; ./dev setup brings them")


@pytest.fixture(scope="session")
def control(peers: None) -> dict[int, stock.Pulled]:
    """A stock puller takes a tensor of each size from a stock exporter that has one slot."""
    del peers
    pulled = {}
    try:
        with stock.Exporter(slots=1, slot_bytes=32 * stock.MIB) as gateway, stock.Puller() as worker:
            for key, nbytes in enumerate(stock.SIZES):
                lease = gateway.export(key, nbytes)
                assert gateway.try_export(99) is None, "there is one slot"
                pulled[nbytes] = stock.Pulled(lease, worker.pull(lease))
                assert pulled[nbytes].answer.get("sha256") == lease.sha256, pulled[nbytes].answer
            gateway.export(98)
    except Exception as error:
        pytest.fail(
            f"the stock pair does not work here: the machine is at fault, not what is tested. {error}", pytrace=False
        )
    return pulled


@pytest.fixture
def nixl(command: Path, control: dict[int, stock.Pulled]) -> None:
    """For tests of the command: it has the engine, and the stock pair works."""
    del control
    if "nixl" not in run(command, "export", "--help").out:
        pytest.skip("this command has no engine nixl: Tensorferry is NOT tested against SMG's peers")
