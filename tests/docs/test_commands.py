"""Every command that a document shows is run, and prints what is shown below it."""

import re
from pathlib import Path

import pytest
from ferry import run
from shown import COMMANDS, DOCUMENTS, ROOT, Session, blocks, looks_like, prose

ALL = [block for document in DOCUMENTS for block in blocks(document)]
HERE = [block for block in ALL if block.language in COMMANDS and block.runner is None]
# What is no command.
OTHERS = ("", "text", "json", "yaml", "cpp", "cmake", "python")


@pytest.mark.parametrize("document", sorted({b.document for b in HERE}), ids=lambda d: str(d.relative_to(ROOT)))
def test_commands_run(command: Path, document: Path, tmp_path: Path) -> None:
    with Session(command, tmp_path) as session:
        for block in HERE:
            if block.document == document:
                session.type(block)


def test_no_command_is_left_out() -> None:
    """A block is either run here or by a test that takes what it is to run from the document."""
    for block in ALL:
        assert block.language in (*COMMANDS, *OTHERS), block
        if block.language in COMMANDS:
            assert block.commands(), f"{block}: no command"
        else:
            assert block.runner is None, block
            # The help is made from the code, and tests/docs/test_reference.py runs its examples.
            seen = block.document.name == "command.md"
            assert seen or not re.search(r"^(\$|tensorferry|\./dev) ", block.text, re.MULTILINE), f"{block}: commands"
        if block.runner is not None:
            assert "run_by(__file__)" in (ROOT / block.runner).read_text(), block
    for document in DOCUMENTS:
        # One that is made by four blanks has no language.
        assert not re.search(r"\n\n {4,}\S", prose(document)), f"{document}: an indented block"


@pytest.fixture(scope="module")
def flags(command: Path) -> dict[str, set[str]]:
    """Of each verb."""
    verbs = re.findall(r"^  (\w+)  ", run(command, "--help").out.partition("Subcommands:")[2], re.MULTILINE)
    return {verb: set(re.findall(r"--[a-z][\w-]*", run(command, verb, "--help").out)) for verb in verbs}


def test_what_a_sentence_names_is_there(flags: dict[str, set[str]]) -> None:
    """`tensorferry VERB --flag` inside a sentence, or `VERB --flag`: both exist. The same of `./dev VERB`."""
    dev = set(re.findall(r"^verb_(\w+)\(\)", (ROOT / "dev").read_text(), re.MULTILINE))
    seen = 0
    for document in DOCUMENTS:
        for code in re.findall(r"`([^`]+)`", prose(document)):
            program, *words = code.split()
            if program == "./dev" and words:
                assert words[0] in dev, f"{document.name}: {code}"
            if program in flags:
                words = [program, *words]
            elif program != "tensorferry" or not words or words[0] in ("VERB", "--version"):
                continue
            assert words[0] in flags, f"{document.name}: {code}"
            seen += 1
            named = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert named <= flags[words[0]], f"{document.name}: {code}"
    assert seen > 30


def test_shapes() -> None:
    assert looks_like("photo.jpg  [3,600,512]  1843200 B  9.14 ms", "photo.jpg [3,1,1]   7 B 10 ms")
    assert looks_like("sha256 8f00b204e9800998ecf8427e … ok", "sha256 d41d8cd98f00b204e9800998 and more: ok")
    assert not looks_like("shm local 1 ms", "remote tcp 1 ms")
    assert not looks_like("verified", "verified: no")
