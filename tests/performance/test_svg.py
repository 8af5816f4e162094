"""Plots are well-formed, stay inside their frame, and name what they show."""

import xml.etree.ElementTree as ElementTree

import pytest

from bench import svg

SPACE = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SPACE}text")]


def numbers(drawn: str, kind: str, *names: str) -> list[list[float]]:
    return [[float(e.attrib[name]) for name in names] for e in ElementTree.fromstring(drawn).iter(f"{SPACE}{kind}")]


def test_lines_stay_inside_and_rise_with_their_values() -> None:
    drawn = svg.lines("T & <t>", "x", "y", {"a": [(1, 10), (100, 1000)], "b": [(1, 20)]}, log_x=True, log_y=True)
    assert {"T & <t>", "x", "y", "a", "b"} <= set(texts(drawn))
    places = numbers(drawn, "circle", "cx", "cy")
    assert len(places) == 3
    for x, y in places:
        assert svg.LEFT <= x <= svg.WIDTH - svg.RIGHT
        assert svg.TOP <= y <= svg.HEIGHT - svg.BOTTOM
    assert places[0][0] < places[1][0]
    assert places[0][1] > places[1][1], "up is more"


def test_names_of_lines_that_end_together_are_apart() -> None:
    drawn = svg.lines("t", "x", "y", {name: [(1, 5), (2, 5)] for name in "abc"})
    at = [float(e.attrib["y"]) for e in ElementTree.fromstring(drawn).iter(f"{SPACE}text") if e.text in ("a", "b", "c")]
    assert min(abs(p - q) for p in at for q in at if p != q) >= 15
    assert len(set(at)) == 3


def test_bars_are_as_high_as_their_values() -> None:
    drawn = svg.bars("t", "y", {"a": {"one": 1.0, "two": 2.0}, "b": {"one": 1.5}, "none": {}})
    heights = [height for (height,) in numbers(drawn, "rect", "height")][1:4]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == pytest.approx(1.5 * heights[0], abs=0.2)
    assert {"a", "b", "one", "two", "3.00", "1.50"} <= set(texts(drawn))
    assert "none" not in texts(drawn)


@pytest.mark.parametrize("drawn", [svg.lines("t", "x", "y", {"a": []}), svg.bars("t", "y", {})])
def test_nothing_is_said_where_nothing_was_measured(drawn: str) -> None:
    assert "nothing was measured" in texts(drawn)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.03), (0, 7), (0, 1234)])
def test_axes_have_a_few_ticks(low: float, high: float) -> None:
    ticks = svg.Axis(low, high, False, 0, 1).ticks()
    assert 3 <= len(ticks) <= 11
    assert all(low <= tick <= high * 1.001 for tick in ticks)
