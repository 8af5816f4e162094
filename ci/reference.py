#!/usr/bin/python3 -I
"""What of the documents is made from the code: docs/command.md, and the table of docs/errors.md.

ci/reference.py build/tools/tensorferry      # writes them

Also a module: contents() says what each must hold.
"""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
ERROR_H = DOCS.parent / "tensorferry" / "base" / "error.h"

COMMAND = """# The command

What `tensorferry VERB --help` prints. Made by `./dev docs`; not written by hand. What verbs have in common: results
go to standard output, errors to standard error; the exit code is 0 (done), 1 (failed) or 2 (usage); with `--json` each
line is one JSON object, and a failure has `error`, `code` ([errors.md](errors.md)) and `retryable`.
"""


def help_of(command: Path, *verb: str) -> str:
    done = subprocess.run([command, *verb, "--help"], capture_output=True, text=True, check=True)
    return re.sub(r"[ \t]+$", "", done.stdout, flags=re.MULTILINE).rstrip("\n")


def command_document(command: Path) -> str:
    whole = help_of(command)
    verbs = re.findall(r"^  (\w+)  ", whole.partition("Subcommands:")[2], re.MULTILINE)
    parts = [COMMAND, f"```text\n{whole}\n```\n"]
    parts += [f"## {verb}\n\n```text\n{help_of(command, verb)}\n```\n" for verb in verbs]
    return "\n".join(parts)


def error_rows() -> list[str]:
    source = ERROR_H.read_text()
    found = re.findall(r'X\(k\w+, (\d+), "(\w+)", (\w+), (\w+),[\s\\]*"(.*?)"\)', source)
    if len(found) != len(re.findall(r"^  X\(", source, re.MULTILINE)):
        raise ValueError(f"{ERROR_H}: a row that is not understood")
    canonical = re.compile(r"(?<!^)(?=[A-Z])")
    rows = ["| code | number | status | again | meaning |", "|---|---|---|---|---|"]
    for number, name, status, again, meaning in found:
        rows.append(
            f"| `{name}` | {number} | {canonical.sub('_', status).upper()} |"
            f" {'yes' if again == 'true' else 'no'} | {meaning} |"
        )
    return rows


def error_document() -> str:
    """The present one, with the present table."""
    text = (DOCS / "errors.md").read_text()
    before, table, after = re.split(r"((?:^\|.*\n)+)", text, maxsplit=1, flags=re.MULTILINE)
    del table
    return before + "\n".join(error_rows()) + "\n" + after


def contents(command: Path) -> dict[Path, str]:
    return {DOCS / "command.md": command_document(command), DOCS / "errors.md": error_document()}


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: ci/reference.py COMMAND", file=sys.stderr)
        return 2
    for document, text in contents(Path(sys.argv[1]).resolve()).items():
        document.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
