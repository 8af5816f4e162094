"""Reads what a verb serves at --metrics, and checks that it is what Prometheus's text format says."""

import re
import urllib.request
from collections.abc import Iterable

# A series: its name and its labels.
Series = tuple[str, frozenset[tuple[str, str]]]

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="([^"\\\n]*)"')
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


def parse(text: str) -> dict[Series, float]:
    values: dict[Series, float] = {}
    types: dict[str, str] = {}
    helped = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert helped not in types, f"{helped} twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped
            types[name] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            name, labels, value = sample.groups()
            family = OF_HISTOGRAMS.sub("", name) if types[helped] == "histogram" else name
            assert family == helped, f"{line} among {helped}"
            series = (name, frozenset(LABEL.findall(labels or "")))
            assert series not in values, line
            values[series] = float(value)
    for name, kind in types.items():
        assert name.endswith("_total") == (kind == "counter"), name
        if kind == "histogram":
            check_histogram(name, values)
    return values


def check_histogram(name: str, values: dict[Series, float]) -> None:
    counts = [(labels, n) for (series, labels), n in values.items() if series == f"{name}_count"]
    assert counts
    for labels, count in counts:
        buckets = {
            float(dict(bucket)["le"]): n
            for (series, bucket), n in values.items()
            if series == f"{name}_bucket" and {pair for pair in bucket if pair[0] != "le"} == labels
        }
        assert [buckets[bound] for bound in sorted(buckets)] == sorted(buckets.values())
        assert buckets[float("inf")] == count


class Scrape:
    """What was served at one moment."""

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            self.values = parse(answer.read().decode())

    def get(self, name: str, **labels: str) -> float:
        """Of exactly these labels; a series that is not there has counted nothing."""
        renamed = {key.rstrip("_"): value for key, value in labels.items()}
        return self.values.get((name, frozenset(renamed.items())), 0)

    def sum(self, name: str, **labels: str) -> float:
        """Of every series that has these labels, and maybe more."""
        return sum(n for (series, own), n in self.values.items() if series == name and set(labels.items()) <= own)

    def names(self) -> Iterable[str]:
        return {name for name, _ in self.values}
