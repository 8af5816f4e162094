"""What `tensorferry doctor` says, and machines on which it is asked."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from ferry import Event, Result, run, without_settings

KEYS = {"check", "lane", "transport", "direction", "verdict", "cause", "evidence", "fix"}
WORST = ["ok", "degraded", "off"]


class Report:
    """What `doctor --json` says."""

    def __init__(self, result: Result) -> None:
        assert result.code in (0, 1), result.out + result.err
        self.code = result.code
        self.err = result.err
        self.rows: list[Event] = result.row()["checks"]
        for row in self.rows:
            assert set(row) == KEYS
            assert row["verdict"] in WORST
            assert row["direction"] in ("send", "receive")
            assert row["evidence"], row
            # What is not ok says why and what to do; what is ok has nothing to say.
            assert bool(row["cause"]) == bool(row["fix"]) == (row["verdict"] != "ok"), row

    def verdict(self, transport: str, direction: str) -> str:
        found = [r["verdict"] for r in self.rows if (r["transport"], r["direction"]) == (transport, direction)]
        assert found, f"{transport} {direction} was not examined"
        return str(max(found, key=WORST.index))

    def verdicts(self, direction: str = "send") -> dict[str, str]:
        return {way: self.verdict(way, direction) for way in dict.fromkeys(r["transport"] for r in self.rows)}

    def finding(self, check: str, transport: str, direction: str = "send") -> Event:
        found = [r for r in self.rows if (r["check"], r["transport"], r["direction"]) == (check, transport, direction)]
        assert len(found) == 1, f"{check} of {transport}: {found}"
        return found[0]

    def not_ok(self) -> set[tuple[str, str]]:
        return {(r["check"], r["verdict"]) for r in self.rows if r["verdict"] != "ok"}


def doctor(command: Path, *args: str | Path, prefix: Sequence[str] = (), **variables: str) -> Report:
    """Without what this process has of its own settings; of the engines those that need no library, unless told."""
    engines = [] if "--engine" in args else ["--engine", "local,file,tcp"]
    return Report(run(command, "doctor", "--json", *engines, *args, prefix=prefix, env=without_settings(**variables)))


def altered(script: str) -> list[str]:
    """Before a command: it sees what the script has mounted. Skips loudly where that is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("a machine that is altered by mounts needs root: this finding is NOT tested here")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}\nexec "$@"', "sh"]


def limited(**limits: int) -> list[str]:
    return ["prlimit", *(f"--{name}={value}" for name, value in limits.items())]
