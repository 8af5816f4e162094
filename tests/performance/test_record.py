"""From rounds to rows, and one record against another."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import document, goals, record, run
from bench.contenders import KIB, MIB, Contender, Gap, Rows, contenders, parts_of, perftest_row, rows_of
from bench.goals import Goal, Of, at

ABOUT = {
    "load": 0.25,
    "machine": "M, 2 cores",
    "date": "2026-01-02",
    "versions": {"x": "1"},
    "contenders": {"tcp": "lane"},
}


def row(p50: float, **more: float) -> dict[str, Any]:
    figures = {"p90_us": p50, "gb_per_s": 1 / p50, "gateway_us": 1.0, "handover_us": 2.0, "worker_us": p50 - 3}
    cost = {"gateway_cpu_s_per_gib": 0.25, "worker_cpu_s_per_gib": 0.5}
    memory = {"gateway_peak_bytes": MIB, "worker_peak_bytes": MIB, "arena_bytes_per_tensor": MIB, "gateway_faults": 0}
    return {"transport": "tcp", "count": 3, "p50_us": p50, **figures, **cost, **memory, **more}


def rounds_of(ours: list[float], theirs: list[float]) -> list[dict[str, Any]]:
    return [{"tcp": {MIB: row(a)}, "sockets": {MIB: row(b)}} for a, b in zip(ours, theirs, strict=True)]


def made(ours: list[float], theirs: list[float]) -> record.Record:
    return record.make(rounds_of(ours, theirs), {"ucx": "not there"}, ABOUT)


def found(of: record.Record, against: str, size: int = MIB) -> dict[str, Any]:
    (only,) = (r for r in of["rows"] if (r["work"], r["against"], r["size"]) == ("lane, tcp", against, size))
    line: dict[str, Any] = only
    return line


SOCKETS = "bare sockets, spin then poll"


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    # Each round's ratio, not the ratio of medians: 2, 1, 4.
    line = found(made([10, 20, 10], [20, 20, 40]), SOCKETS)
    assert (line["ratio"], line["low"], line["high"], line["rounds"]) == (2, 1, 4, 3)
    assert (line["ours"], line["theirs"], line["goal"], line["met"]) == (10, 20, 0.9, True)


def test_a_missed_goal_is_said() -> None:
    of = made([20, 20, 20], [10, 10, 10])
    assert found(of, SOCKETS)["met"] is False
    text = document.document(of)
    assert "**missed**" in text
    assert f"lane, tcp against {SOCKETS}, 1 MiB: 0.5x instead of 0.9x, 44 % short." in text


def test_what_is_not_there_is_a_named_gap() -> None:
    of = made([20], [10])
    line = found(of, "lane, ucx over tcp")
    assert line["ratio"] is None
    assert line["met"] is None
    assert line["gap"] == {"side": "theirs", "why": "ucx: not there"}
    assert "no figure: ucx: not there" in document.document(of)
    assert found(of, SOCKETS, 64 * KIB)["gap"]["why"] == "never measured in the same round"


def test_a_round_that_lacks_one_side_does_not_count() -> None:
    rounds = rounds_of([10, 10], [20, 40])
    del rounds[1]["sockets"]
    line = found(record.make(rounds, {}, ABOUT), SOCKETS)
    assert (line["ratio"], line["rounds"]) == (2, 1)


def test_throughput_is_better_when_it_is_more_and_limits_when_less() -> None:
    wide = Goal("a", "b", Of("x"), Of("y"), at(1), more_is_better=True)
    assert wide.ratio(4, 2) == 2
    assert Goal("a", "limit", Of("x"), 3, at(1)).ratio(1.5, 3) == 2
    faults = Goal("a", "none", Of("x"), 0, at(1))
    assert faults.ratio(0, 0) == 1
    assert faults.ratio(2, 0) == 0
    assert Goal("a", "limit", Of("x"), 8, at(1)).ratio(0, 8) == goals.MOST


def test_what_is_taken_off_never_goes_below_nothing() -> None:
    added = Of("python", goals.worker, minus="tcp")
    assert added.get({"python": {1: row(20)}, "tcp": {1: row(15)}}, 1) == 5
    assert added.get({"python": {1: row(10)}, "tcp": {1: row(15)}}, 1) == 0
    assert added.get({"python": {1: row(10)}}, 1) is None


def test_goals_name_contenders_that_exist() -> None:
    names = {contender.name: contender for contender in contenders()}
    for goal in goals.GOALS:
        for side in (goal.ours, goal.theirs):
            if isinstance(side, Of):
                assert side.contender in names, goal
                assert set(goal.goals) <= set(names[side.contender].sizes), goal
                assert side.minus is None or side.minus in names


def test_a_record_against_itself_is_not_slower() -> None:
    of = made([10, 11, 9], [20, 20, 20])
    assert record.compare(of, of) == ([], [])


@pytest.mark.parametrize(
    ("ours", "is_slower"),
    [
        ([10, 10, 10], False),
        ([5, 5, 5], False),  # faster
        ([11, 10, 12], False),  # within what the record strayed
        ([20, 20, 20], True),
        ([20, 8, 20], False),  # strays as far as the record was
    ],
)
def test_slower_is_beyond_both_spreads(ours: list[float], is_slower: bool) -> None:
    slower, gone = record.compare(made([10, 9, 12], [20, 20, 20]), made(ours, [20, 20, 20]))
    assert bool([line for line in slower if SOCKETS in line]) == is_slower
    assert gone == []


def test_a_figure_of_ours_that_is_gone_counts_and_a_peers_does_not() -> None:
    old = made([10], [20])
    without_ours = record.make([{"sockets": {MIB: row(20)}}], {"tcp": "crashed"}, ABOUT)
    slower, gone = record.compare(old, without_ours)
    assert slower == []
    assert any("tcp: crashed" in line for line in gone)
    without_theirs = record.make([{"tcp": {MIB: row(10)}}], {"sockets": "crashed"}, ABOUT)
    assert [line for line in record.compare(old, without_theirs)[1] if SOCKETS in line] == []


def test_the_record_is_json_and_the_document_complete() -> None:
    of = made([10, 10], [20, 20])
    of["parts"] = {"Encode": {"time": 50.0, "unit": "ns", "counters": {"page_faults": 0.0}, "gb_per_s": 2.0}}
    assert json.loads(json.dumps(of, allow_nan=False)) == of
    files = document.files(copy.deepcopy(of))
    assert set(files) == {"performance.md", *(f"performance/{name}.svg" for name in ("latency", "throughput", "cpu"))}
    text = files["performance.md"]
    assert "$" not in text
    for wanted in ("M, 2 cores", "2026-01-02", "`ucx`: not there", "| Encode | 50 ns | 2 | page_faults 0 |", "x 1."):
        assert wanted in text, wanted


def test_what_the_programs_print_is_read() -> None:
    out = '{"nbytes":1,"p50_us":2}\n{"nbytes":3,"p50_us":4}\n'
    assert rows_of(out)[3]["p50_us"] == 4
    with pytest.raises(Gap, match="lane_off"):
        rows_of('{"nbytes":1,"error":"lane_off"}\n')
    with pytest.raises(Gap):
        rows_of("")
    assert rows_of(out + '{"nbytes":5,"error":"no"}\n')[5] == {"nbytes": 5, "error": "no"}
    printed = (
        "|  Stage | x |\nFinal:               100      6.000     6.342     6.342      9.86  9.86  157675  157675\n"
    )
    assert perftest_row(65536, 100, printed)["p50_us"] == 6
    with pytest.raises(Gap):
        perftest_row(65536, 100, "nothing")
    parts = parts_of(
        {
            "benchmarks": [
                {"name": "A/1", "real_time": 5.0, "time_unit": "ns", "cpu_time": 5.0, "faults": 2.0},
                {"name": "B", "real_time": 5.0, "time_unit": "ns", "bytes_per_second": 2e9},
                {"name": "C", "error_occurred": True},
            ]
        }
    )
    assert parts["A/1"] == {"time": 5.0, "unit": "ns", "counters": {"faults": 2.0}}
    assert parts["B"]["gb_per_s"] == 2
    assert "C" not in parts


def test_one_that_fails_loses_nothing_of_the_others() -> None:
    runs = []

    def fails(counts: Mapping[int, int]) -> Rows:
        runs.append(counts)
        raise Gap("crashed")

    def partly(counts: Mapping[int, int]) -> Rows:
        return {size: row(10) if size == MIB else {"nbytes": size, "error": "too large"} for size in counts}

    chosen = [
        Contender("tcp", "fails", [MIB], fails),
        Contender("sockets", "fails at one size", [MIB, 9 * MIB], partly),
    ]
    options = run.arguments(["--rounds", "5", "--scale", "0.1"])
    rounds, gaps = run.measure(chosen, options)
    assert len(rounds) == 5
    assert all(set(measured) == {"sockets"} and set(measured["sockets"]) == {MIB} for measured in rounds)
    assert gaps == {"tcp": "crashed", "sockets, 9 MiB": "too large"}
    assert len(runs) == run.TOO_OFTEN, "it is not tried for ever"
    of = record.make(rounds, gaps, ABOUT)
    assert found(of, SOCKETS)["gap"] == {"side": "ours", "why": "tcp: crashed"}


def test_no_round_begins_too_late() -> None:
    chosen = [Contender("tcp", "quick", [MIB], lambda _: {MIB: row(10)})]
    rounds, _ = run.measure(chosen, run.arguments(["--rounds", "9", "--minutes", "0"]))
    assert len(rounds) == record.ENOUGH_ROUNDS


def test_files_are_written_and_compared(tmp_path: Path) -> None:
    old = made([10, 10], [20, 20])
    run.write(tmp_path, old)
    assert (tmp_path / "performance/latency.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "performance.json").read_text()) == old
