#!/usr/bin/python3 -I
"""Counts the tests whose outcomes are below a folder: JUnit XML files and checks.txt ("passed NAME", "failed NAME").

ci/tally.py build/results              # 311 passed, 0 failed, 2 skipped
ci/tally.py --failed build/results     # the names, one a line; exit 0 if there is one
"""

import argparse
import collections
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path


def outcomes(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields (passed, failed or skipped; name)."""
    for path in sorted(folder.rglob("checks.txt")):
        for line in path.read_text().splitlines():
            outcome, _, name = line.partition(" ")
            yield outcome, name
    for path in sorted(folder.rglob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            outcome = "passed"
            if case.find("failure") is not None or case.find("error") is not None:
                outcome = "failed"
            elif case.find("skipped") is not None:
                outcome = "skipped"
            yield outcome, case.get("name", "?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--failed", action="store_const", const="failed", dest="list")
    parser.add_argument("--skipped", action="store_const", const="skipped", dest="list")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()

    found = list(outcomes(options.folder))
    if options.list:
        names = [name for outcome, name in found if outcome == options.list]
        print(*names, sep="\n", end="\n" if names else "")
        return 0 if names else 1

    counts = collections.Counter(outcome for outcome, _ in found)
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
