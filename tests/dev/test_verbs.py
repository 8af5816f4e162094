"""The `./dev` that documents show."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shown import ROOT, looks_like, run_by

# What this test cannot run within itself, or would change the tree with: who does it instead, and by what words.
ELSEWHERE = {
    "./dev test": (".ci/run", "exec ./dev test"),
    "./dev packages": ("ci/stages.bash", "make_packages && run_pytest build tests/install"),
    "./dev test --only": ("ci/stages.bash", 'run_stage "$name"'),
    "./dev test FILTER": ("ci/stages.bash", '[[ -z $filter ]] || options+=(-k "$filter")'),
    "./dev wheel": ("tests/python/test_install.py", "def test_the_verb_makes_the_wheel"),
    "./dev bench": ("tests/peers/test_bench.py", "contender(name).measure({64 * KIB: 4})"),
    "cmake": ("ci/build.bash", 'cmake --fresh -S . -B "$dir"'),
    "ninja": ("ci/build.bash", 'nice ninja -C "$dir"'),
    "ctest": ("ci/stages.bash", 'ctest --test-dir "$1"'),
}
# What is run in a copy of the tree, and makes these texts there right again.
MENDS = {
    "./dev format": {
        "tensorferry/base/dtype.cc": ("  return ", "  return   "),
        "tests/ferry.py": ("  return ", "  return   "),
    },
    "./dev docs": {
        "docs/command.md": ("--json", "--jason"),
        "docs/errors.md": ("| `bad_descriptor` |", "| `bad` |"),
    },
}
BLOCKS = run_by(__file__)
COMMANDS = [(block, line, shown) for block in BLOCKS for line, shown in block.commands()]


def kind(line: str) -> str:
    words = line.split()
    if words[:2] != ["./dev", "test"]:
        return " ".join(words[:2]) if words[0] == "./dev" else words[0]
    return "./dev test --only" if "--only" in words else "./dev test FILTER" if len(words) > 2 else "./dev test"


def dev(*arguments: str, tree: Path = ROOT) -> str:
    done = subprocess.run(
        [tree / "dev", *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_tree(folder: Path, *names: str) -> Path:
    """With these files alone in git. What is installed and built is that of the tree itself."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in filter(None, files.split("\0")):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    for name in (".venv", "build"):
        (folder / name).symlink_to(ROOT / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--", *names], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("line", sorted({line for _, line, _ in COMMANDS}))
def test_each_is_run(line: str, tmp_path: Path) -> None:
    """Here, or by who is named above."""
    if line == "./dev build":
        path = Path(dev("build").splitlines()[-1])
        assert path == ROOT / "build/tools/tensorferry"
        assert os.access(path, os.X_OK)
    elif line == "./dev help":
        shown = dev("help")
        for verb in re.findall(r"^verb_(\w+)\(\)", (ROOT / "dev").read_text(), re.MULTILINE):
            assert verb == "help" or re.search(rf"^  {verb}\b", shown, re.MULTILINE), verb
    elif line == "./dev demo":
        printed = dev("demo").splitlines()
        table = (ROOT / "README.md").read_text().partition("```text\n")[2].partition("```")[0].splitlines()
        assert len(table) == len(printed) > 20
        for wanted, got in zip(table, printed, strict=True):
            assert looks_like(wanted, got), f"README.md shows\n{wanted}\nbut it prints\n{got}"
    elif line in MENDS:
        tree = copy_of_the_tree(tmp_path, *MENDS[line])
        for name, (right, wrong) in MENDS[line].items():
            text = (tree / name).read_text()
            assert right in text
            (tree / name).write_text(text.replace(right, wrong))
        dev(line.split()[1], tree=tree)
        for name in MENDS[line]:
            assert (tree / name).read_text() == (ROOT / name).read_text(), name
    elif line.startswith("apt-get "):
        if os.geteuid() != 0:
            pytest.skip("needs root: the packages that documents name are NOT tested here")
        # What is installed needs no network, and another apt-get may be at work.
        settings = 'DPkg::Lock::Timeout "600";\nDir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n'
        (tmp_path / "lists").mkdir()
        settings += f'Dir::State::lists "{tmp_path}/lists";\n'
        (tmp_path / "apt.conf").write_text(settings)
        environment = {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")}
        subprocess.run(["bash", "-euc", line], env=environment, check=True, stdin=subprocess.DEVNULL)
    else:
        for part in line.split(" && "):
            file, words = ELSEWHERE[kind(part)]
            assert words in (ROOT / file).read_text(), f"{file} does not run {part} any more"
        if "--only" in line:
            stages = re.search(r"^readonly stages=\((.*)\)$", (ROOT / "ci/stages.bash").read_text(), re.MULTILINE)
            assert stages is not None
            assert line.split("--only ")[1].split()[0] in stages.group(1).split()


def test_none_is_named_in_vain() -> None:
    assert {kind(part) for _, line, _ in COMMANDS for part in line.split(" && ")} >= set(ELSEWHERE)
