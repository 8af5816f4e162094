"""The commands that documents show, and a host to type them into.

for block in blocks(document):           # of every language
    ...
with Session(command, folder) as session:
    session.type(block)                  # each command, with the output that is shown for it

A block of commands is of the language `console` (commands behind `$ `, what they print below) or `sh` (commands alone).
It is run as it stands by tests/docs/test_commands.py, after those above it in the same document, unless the line
before it is `<!-- run by tests/… -->`: then that test takes it, by `run_by(__file__)`.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ferry import holder, printed, wait_until, without_settings
from hosts import require_namespaces

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "examples", "deploy", "tests/data")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md"))])
COMMANDS = ("console", "sh")


@dataclass
class Block:
    document: Path
    line: int
    language: str
    text: str
    runner: str | None  # the test that runs it, where it is not the usual one

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command on one line, and the lines that are shown below it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.replace("\\\n", " ").splitlines():
            if self.language == "sh":
                if bare := re.sub(r"(^|\s)#.*", "", line).strip():
                    found.append((bare, []))
            elif line.startswith("$ "):
                found.append((line[2:].strip(), []))
            else:
                assert found, f"{self}: output before any command"
                found[-1][1].append(line)
        return found


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    found = []
    fence = re.compile(r"(?:^ *<!-- run by (\S+) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        runner, indent, language, body = match.groups()
        lines = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(document, line, language, lines, runner))
    return found


def run_by(test: str) -> list[Block]:
    """The blocks that say that this file runs them."""
    name = str(Path(test).resolve().relative_to(ROOT))
    found = [block for document in DOCUMENTS for block in blocks(document) if block.runner == name]
    assert found, f"no document says that {name} runs its commands"
    return found


def prose(document: Path) -> str:
    """Without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def looks_like(shown: str, printed: str) -> bool:
    """The same but for numbers, digests and spaces; `…` stands for anything."""

    def shape(line: str) -> str:
        line = re.sub(r"\b[0-9a-f]{16,}\b", "0", line)
        return " ".join(re.sub(r"\d(?:[\d.,]*\d)?", "0", line).split())

    pattern = ".*".join(re.escape(part.strip()) for part in shape(shown).split("…"))
    return re.fullmatch(pattern, shape(printed)) is not None


class Session:
    """A folder, and a host of its own, so that every address and port that a document names is free.

    The host has 127.0.0.1, 10.0.0.5 and 10.0.0.7; the folder holds what the clone does, by links, and photo.jpg. What
    is started by `&` is ready when it has printed a line, and must end well at the end.
    """

    def __init__(self, command: Path, folder: Path, env: Mapping[str, str] | None = None) -> None:
        require_namespaces()
        self._folder = folder
        path = f"{command.parent}:{os.environ['PATH']}"
        kept = {name: value for name, value in without_settings().items() if not name.startswith("UCX_")}
        self._env = {**kept, "PATH": path, **(env or {})}
        (folder / "photo.jpg").write_bytes((ROOT / "tests/data/grace_hopper.jpg").read_bytes())
        for entry in ("docs", "examples", "tests", "deploy"):
            (folder / entry).symlink_to(ROOT / entry)
        (folder / "build").symlink_to(command.parents[1])
        self._background: list[tuple[subprocess.Popen[bytes], str]] = []
        self._outputs: list[Path] = []
        self._stack = ExitStack()
        self.prefix: list[str] = []

    def __enter__(self) -> "Session":
        addresses = "ip addr add 10.0.0.5/24 dev lo && ip addr add 10.0.0.7/24 dev lo"
        setup = f"ip link set lo up && {addresses} && echo ready && exec sleep infinity"
        host = self._stack.enter_context(holder("unshare", "--net", "sh", "-c", setup))
        self.prefix = ["nsenter", f"--net=/proc/{host}/ns/net"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        finally:
            for process, _ in self._background:
                process.kill()
                process.wait()
            self._stack.close()

    def end(self) -> None:
        """Ends what runs in the background, as a reader would, by `kill`."""
        for process, _ in self._background:
            process.terminate()
        while self._background:
            process, line = self._background.pop()
            # A program without a handler just ends.
            assert process.wait() in (0, -signal.SIGTERM), f"{line}\n{self.said()}"

    def said(self) -> str:
        """What is printed in the background."""
        return "".join(output.read_text(errors="replace") for output in self._outputs)

    def type(self, block: Block) -> None:
        for line, shown in block.commands():
            where = f"{block}: {line}"
            self._compare(where, shown, self.run(line, where))

    def begin(self, line: str) -> subprocess.Popen[str]:
        """In the caller's hands."""
        return subprocess.Popen(
            [*self.prefix, "bash", "-euc", line], cwd=self._folder, env=self._env, stdout=subprocess.PIPE, text=True
        )

    def run(self, line: str, where: str = "") -> str:
        """What it prints. It must exit with 0."""
        where = where or line
        if line == "kill %1":
            self.end()
            return ""
        if line.endswith("&") and not line.endswith("&&"):
            return self._start(line[:-1], where)
        return printed(
            *self.prefix,
            "bash",
            "-euc",
            line,
            cwd=self._folder,
            env=self._env,
            context=lambda: f"{self.said()}{where}",
        )

    def _start(self, line: str, where: str) -> str:
        output = self._folder / f".said-{len(self._outputs)}"
        self._outputs.append(output)
        with output.open("wb") as out:
            process = subprocess.Popen(
                [*self.prefix, "bash", "-euc", f"exec {line}"],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._background.append((process, line))
        wait_until(lambda: "\n" in output.read_text(errors="replace") or process.poll() is not None, where)
        assert process.poll() is None, f"{where}\n{self.said()}"
        return ""

    def _compare(self, where: str, shown: list[str], printed: str) -> None:
        """Each line that is shown is printed, by the command or in the background, in the order of each."""

        def missing() -> list[str]:
            wanting = []
            sources = [printed.splitlines(), self.said().splitlines()]
            for line in filter(str.strip, shown):
                for lines in sources:
                    at = next((at for at, each in enumerate(lines) if looks_like(line, each)), None)
                    if at is not None:
                        del lines[: at + 1]
                        break
                else:
                    wanting.append(line)
            return wanting

        if missing():
            # The background may say a little later what it did.
            wait_until(
                lambda: not missing(),
                lambda: f"{where}\nshown: {missing()}\nprinted: {printed}{self.said()}",
            )
