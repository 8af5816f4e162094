"""Every link in the documents leads somewhere: to a file that is there, and to a heading in it."""

import re
from pathlib import Path

import pytest
from shown import DOCUMENTS, ROOT, prose


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings: a heading that comes twice gets a number."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#{1,6} (.*)$", prose(document), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def broken(document: Path, root: Path = ROOT) -> list[str]:
    wrong = []
    for target in re.findall(r"\]\(([^)]+)\)", prose(document)):
        if re.match(r"https://[\w.-]+(/\S*)?$", target):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        found = file.exists() and file.is_relative_to(root)
        if not found or (anchor and (file.suffix != ".md" or anchor not in anchors(file))):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken(document) == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Once\n# Once\n")
    (tmp_path / "code.cc").touch()
    bad = ["gone.md", "other.md#twice", "#gone", "code.cc#x", "ftp://x", "/etc/passwd", "#no-heading"]
    good = ["#a-head-of-it", "other.md#once-1", "code.cc", "https://prometheus.io"]
    links = " ".join(f"[x]({target})" for target in bad + good)
    document = tmp_path / "document.md"
    document.write_text(f"# A `head`: of it\n{links}\n```sh\n# no heading\n[x](not-a-link.md)\n```\n")
    assert broken(document, tmp_path) == bad


def test_the_index_names_every_document() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+\.md)", (ROOT / "docs" / "README.md").read_text()))
    files = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert files - linked == set()
