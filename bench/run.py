"""Measures everything against everything, in rounds; see --help. Run by `./dev bench`."""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import document, record
from bench.contenders import Contender, Gap, Rows, contenders, parts

ROOT = Path(__file__).parents[1]
# A contender that failed so often is not tried again: it is a gap, not a delay.
TOO_OFTEN = 2


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measures every lane against the peers, interleaved; writes docs/performance.{json,md} and plots.",
        epilog="Example: ./dev bench --only tcp,sockets,stock --rounds 5 --out /tmp/figures",
    )
    parser.add_argument("--rounds", type=int, default=7, help="how often each contender runs (%(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=9.5,
        help=f"begin no round after so long, once {record.ENOUGH_ROUNDS} are done (%(default)s)",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual counts of pulls (%(default)s)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="contenders, comma-separated")
    parser.add_argument("--list", action="store_true", help="print the contenders and end")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder to write to (%(default)s)")
    parser.add_argument(
        "--compare",
        nargs="?",
        const=ROOT / "docs/performance.json",
        type=Path,
        help="write nothing; exit with 1 if anything is slower than in this record beyond the spread of both runs",
    )
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds takes 1 or more")
    return options


class Progress:
    """One line on a terminal, else a line for each round."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    def contender(self, number: int, rounds: int, name: str) -> None:
        if self._terminal:
            print(f"\r\x1b[Kround {number} of {rounds}: {name}", end="", file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        print(("\r\x1b[K" if self._terminal else "") + line, file=sys.stderr, flush=True)


def measure(chosen: Sequence[Contender], options: argparse.Namespace) -> tuple[list[dict[str, Rows]], dict[str, str]]:
    """Rounds of all contenders in turn, and why some have no figure. One that fails loses nothing of the others."""
    progress = Progress()
    rounds: list[dict[str, Rows]] = []
    failures: Counter[str] = Counter()
    why: dict[str, str] = {}
    began = time.monotonic()
    for number in range(1, options.rounds + 1):
        if len(rounds) >= record.ENOUGH_ROUNDS and time.monotonic() - began > 60 * options.minutes:
            break
        measured: dict[str, Rows] = {}
        for contender in chosen:
            if failures[contender.name] >= TOO_OFTEN:
                continue
            progress.contender(number, options.rounds, contender.name)
            try:
                rows = contender.run(options.scale)
            except Gap as gap:
                failures[contender.name] += 1
                why[contender.name] = str(gap)
                progress.say(f"round {number}: {contender.name}: {gap}")
                continue
            measured[contender.name] = {size: row for size, row in rows.items() if "error" not in row}
            for size, row in rows.items():
                if "error" in row:
                    why[record.gap_name(contender.name, size)] = row["error"]
                    progress.say(f"round {number}: {record.gap_name(contender.name, size)}: {row['error']}")
        rounds.append(measured)
        progress.say(f"round {number} of {options.rounds} done after {time.monotonic() - began:.0f} s")
    have = {name for measured in rounds for name in measured}
    have |= {record.gap_name(name, size) for measured in rounds for name, rows in measured.items() for size in rows}
    return rounds, {name: text for name, text in why.items() if name not in have}


def pinned(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ \\]+)", path.read_text(), re.MULTILINE))


def versions(rounds: Sequence[dict[str, Rows]]) -> dict[str, str]:
    peers = {**pinned(ROOT / "tests/peers/requirements.txt"), **pinned(ROOT / "bench/requirements.txt")}
    crate = re.search(
        r'smg-mm-rdma = \{ version = "=([^"]+)"', (ROOT / "tests/peers/rust_exporter/Cargo.toml").read_text()
    )
    found = {name: peers[name] for name in ("smg-grpc-servicer", "nixl-cu13", "mooncake-transfer-engine-non-cuda")}
    assert crate is not None
    for measured in rounds:
        for rows in measured.values():
            for row in rows.values():
                if "version" in row:
                    found["tensorferry"] = row["version"]
    found["smg-mm-rdma"] = crate.group(1)
    for package in ("libgrpc++1.51", "ucx-utils"):
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and done.stdout:
            found[package] = done.stdout
    return dict(sorted(found.items()))


def machine(rounds: Sequence[dict[str, Rows]]) -> str:
    for measured in rounds:
        for rows in measured.values():
            for row in rows.values():
                if "machine" in row:
                    return str(row["machine"])
    return "a machine that nothing was measured on"


def about(chosen: Sequence[Contender], rounds: Sequence[dict[str, Rows]], load: float) -> dict[str, Any]:
    return {
        "load": load,
        "machine": machine(rounds),
        "date": datetime.date.today().isoformat(),
        "versions": versions(rounds),
        "contenders": {contender.name: contender.what for contender in chosen},
    }


def write(folder: Path, made: record.Record) -> None:
    for name, content in document.files(made).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "performance.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def main(argv: Sequence[str]) -> int:
    options = arguments(argv)
    chosen = contenders()
    if options.list:
        print("\n".join(f"{contender.name:18} {contender.what}" for contender in chosen))
        return 0
    if options.only:
        unknown = set(options.only) - {contender.name for contender in chosen}
        if unknown:
            print(f"./dev bench: no contender is called {', '.join(sorted(unknown))}; see --list", file=sys.stderr)
            return 2
        chosen = [contender for contender in chosen if contender.name in options.only]
    old = json.loads(options.compare.read_text()) if options.compare else None
    load = os.getloadavg()[0]  # of others: we have not begun
    rounds, gaps = measure(chosen, options)
    made = record.make(rounds, gaps, about(chosen, rounds, load))
    if not options.only:
        try:
            made["parts"] = parts("--benchmark_min_time=0.1")
        except Gap as gap:
            gaps["parts"] = made["gaps"]["parts"] = str(gap)
    for row in made["rows"]:
        if row["ratio"] is not None:
            print("  ".join(document.goal_line(row)))
    for name, why in gaps.items():
        print(f"gap: {name}: {why}")
    if old is None:
        write(options.out, made)
        return 0
    slower, gone = record.compare(old, made)
    for line in slower:
        print(f"slower: {line}")
    for line in gone:
        print(f"gone: {line}")
    print(f"{len(slower)} slower, {len(gone)} gone, against {options.compare}")
    return 1 if slower or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
