"""From rounds to the rows that are kept, and one record against another.

record = make(rounds, gaps, about)          # what docs/performance.json holds
slower, gone = compare(old, new)            # beyond what either run itself strayed
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.contenders import Row
from bench.goals import GOALS, Goal, Round

Record = dict[str, Any]

ENOUGH_ROUNDS = 5


def rounded(value: float) -> float:
    """Four digits: what is beyond them is noise."""
    return float(f"{value:.4g}")


def goal_row(goal: Goal, size: int, wanted: float | None, rounds: Sequence[Round], gaps: Mapping[str, str]) -> Row:
    pairs = []
    for measured in rounds:
        ours = goal.ours.get(measured, size)
        theirs = goal.theirs if isinstance(goal.theirs, int | float) else goal.theirs.get(measured, size)
        if ours is not None and theirs is not None:
            pairs.append((ours, theirs))
    row: Row = {"work": goal.work, "against": goal.against, "size": size, "unit": goal.unit, "goal": wanted}
    if not pairs:
        row.update(ours=None, theirs=None, ratio=None, met=None, gap=gap_of(goal, size, gaps))
        return row
    ratios = [goal.ratio(*pair) for pair in pairs]
    ratio = statistics.median(ratios)
    row.update(
        ours=rounded(statistics.median(ours for ours, _ in pairs)),
        theirs=rounded(statistics.median(theirs for _, theirs in pairs)),
        ratio=rounded(ratio),
        low=rounded(min(ratios)),
        high=rounded(max(ratios)),
        rounds=len(pairs),
        met=None if wanted is None else ratio >= wanted,
    )
    return row


def gap_name(contender: str, size: int) -> str:
    """Of one size alone."""
    return f"{contender}, {size_text(size)}"


def gap_of(goal: Goal, size: int, gaps: Mapping[str, str]) -> Row:
    """Whose figure is missing, and why."""
    theirs = None if isinstance(goal.theirs, int | float) else goal.theirs.contender
    for side, name in (("ours", goal.ours.contender), ("ours", goal.ours.minus), ("theirs", theirs)):
        for gap in (name, gap_name(name, size)) if name is not None else ():
            if gap in gaps:
                return {"side": side, "why": f"{gap}: {gaps[gap]}"}
    return {"side": "ours", "why": "never measured in the same round"}


def lane_row(name: str, size: int, rounds: Sequence[Round]) -> Row:
    """The medians over the rounds of all figures of one contender."""
    rows = [measured[name][size] for measured in rounds if size in measured.get(name, {})]
    keys = [key for key, value in rows[0].items() if isinstance(value, int | float) and not isinstance(value, bool)]
    figures = {key: rounded(statistics.median(row[key] for row in rows)) for key in keys}
    return {"contender": name, "size": size, "transport": rows[0].get("transport"), "rounds": len(rows), **figures}


def make(rounds: Sequence[Round], gaps: Mapping[str, str], about: Mapping[str, Any]) -> Record:
    measured = sorted({(name, size) for each in rounds for name, rows in each.items() for size in rows})
    return {
        **about,
        "rounds": len(rounds),
        "gaps": dict(gaps),
        "rows": [goal_row(goal, size, wanted, rounds, gaps) for goal in GOALS for size, wanted in goal.goals.items()],
        "measured": [lane_row(name, size, rounds) for name, size in measured],
    }


def key_of(row: Row) -> tuple[str, str, int]:
    return row["work"], row["against"], row["size"]


def compare(old: Record, new: Record) -> tuple[list[str], list[str]]:
    """What became slower beyond the spread of both runs, and what of ours has no figure any more."""
    before = {key_of(row): row for row in old["rows"]}
    slower, gone = [], []
    for row in new["rows"]:
        was = before.get(key_of(row))
        if was is None or was["ratio"] is None:
            continue
        name = f"{row['work']} against {row['against']}, {size_text(row['size'])}"
        if row["ratio"] is None:
            if row["gap"]["side"] == "ours":
                gone.append(f"{name}: {row['gap']['why']}")
        elif row["ratio"] < was["low"] and row["high"] < was["ratio"]:
            slower.append(
                f"{name}: {row['ratio']:g}x ({row['low']:g} to {row['high']:g}), "
                f"was {was['ratio']:g}x ({was['low']:g} to {was['high']:g})"
            )
    return slower, gone


def missed(record: Record) -> Iterable[Row]:
    return (row for row in record["rows"] if row["met"] is False)


def size_text(size: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << bits:
            return f"{size / (1 << bits):g} {unit}"
    return f"{size} B"
