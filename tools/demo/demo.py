"""Sends real input from a gateway process to a worker process over every lane, and shows what arrived.

    demo.py --command build/tools/tensorferry [--json]

The worker proves what it received by the SHA-256 of the bytes it got; the gateway compares it with what it staged.
Exits with 1 if a digest differs, a tensor is missing, or a lane fell back to another one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

PICTURES = Path(__file__).resolve().parents[2] / "tests" / "data"
LANES = {"inline": "grpc", "shm": "local", "remote": "tcp"}
COLUMNS = ("file", "lane", "transport", "shape", "dtype", "bytes", "time", "verified")

Row = dict[str, Any]


def make_input(folder: Path) -> list[Path]:
    """Photographs and arrays of about 64 KiB, 9 MiB and 100 MiB as they travel."""
    hopper = Image.open(PICTURES / "grace_hopper.jpg").convert("RGB")
    astronaut = Image.open(PICTURES / "astronaut.png").convert("RGB")
    files = {
        "portrait-64KiB.jpg": hopper.resize((104, 105)),
        "astronaut-64KiB.png": astronaut.resize((104, 105)),
        "portrait-9MiB.jpg": hopper.resize((1254, 1254)),
        "astronaut-9MiB.png": astronaut.resize((1254, 1254)),
    }
    for name, picture in files.items():
        picture.save(folder / name)
    photo = np.asarray(astronaut, np.float32) / 255
    np.save(folder / "features-9MiB.npy", np.resize(photo, (3, 1024, 768)))
    save_file({"frames": np.resize(photo, (100, 512, 512))}, folder / "clip-100MiB.safetensors")
    return sorted(folder.iterdir(), key=lambda f: (f.stat().st_size, f.name))


def send(command: Path, to: str, lane: str, files: list[Path]) -> list[Row]:
    args: list[str | Path] = [command, "send", "--json", "--to", to, "--lane", lane, *files]
    done = subprocess.run(args, stdout=subprocess.PIPE, text=True, check=False)
    rows: list[Row] = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        raise SystemExit(f"demo: send over {lane} failed (exit {done.returncode})")
    if len(rows) != len(files):
        raise SystemExit(f"demo: {len(files)} files were sent over {lane}, {len(rows)} arrived")
    return rows


def wrong(row: Row, lane: str) -> str | None:
    if row["lane"] != lane or row["transport"] != LANES[lane]:
        return f"{row['file']}: asked for {lane}, went {row['lane']} over {row['transport']} ({row['reason']})"
    if row["verified"] is not True:
        return f"{row['file']}: the worker did not receive over {lane} what was sent"
    return None


def text_row(row: Row) -> tuple[str, ...]:
    return (
        Path(row["file"]).name,
        row["lane"],
        row["transport"],
        "[" + ",".join(map(str, row["shape"])) + "]",
        row["dtype"],
        f"{row['nbytes']:,}",
        f"{row['seconds'] * 1000:.1f} ms",
        "yes" if row["verified"] is True else "NO",
    )


def print_table(rows: list[Row]) -> None:
    table = [COLUMNS, *map(text_row, rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    right_aligned = (5, 6)
    for line in table:
        cells = (
            cell.rjust(width) if i in right_aligned else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def run(command: Path, as_json: bool) -> int:
    worker = subprocess.Popen(
        [command, "worker", "--json", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    try:
        ready = worker.stdout.readline()
        if not ready:
            raise SystemExit(f"demo: the worker did not start (exit {worker.wait()})")
        to = json.loads(ready)["listen"]
        with tempfile.TemporaryDirectory(prefix="tensorferry-demo-") as folder:
            files = make_input(Path(folder))
            if not as_json:
                print(
                    f"worker: process {worker.pid} at {to}; a gateway process for each lane\n",
                    flush=True,
                )
            sent = {lane: send(command, to, lane, files) for lane in LANES}
    finally:
        worker.terminate()
        received, _ = worker.communicate()
    rows = [row for lane in LANES for row in sent[lane]]
    digests = [json.loads(line)["sha256"] for line in received.splitlines()]
    faults = [fault for lane in LANES for row in sent[lane] if (fault := wrong(row, lane))]
    if sorted(digests) != sorted(row["sha256"] for row in rows):
        faults.append("the worker's own record of what it received differs from what was sent")
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        print_table(rows)
        if not faults:
            print(f"\n{len(rows)} tensors over {len(LANES)} lanes, every one verified by the worker's SHA-256.")
    for fault in faults:
        print(f"demo: {fault}", file=sys.stderr)
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--command", type=Path, required=True, help="the command `tensorferry`")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, as `tensorferry send --json`")
    options = parser.parse_args()
    return run(options.command, options.json)


if __name__ == "__main__":
    sys.exit(main())
