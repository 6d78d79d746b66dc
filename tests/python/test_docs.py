# SPDX-License-Identifier: BSD-3-Clause
"""The pages: links that lead somewhere, the settings as they are, every page in the index."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from test_cli import altorch

import altorch as package
from tests.ranks.launch import backend_under_test

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_exist(page):
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").strip().lower()).replace(" ", "-")
        for line in page.read_text().splitlines()
        if line.startswith("#")
    }
    for other in PAGES:
        anchors = re.findall(rf"\]\((?:[\w/.]*/)?{re.escape(page.name)}#([\w-]+)\)", other.read_text())
        assert set(anchors) <= headings, f"{other.name} links to what {page.name} has not"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [page.name for page in ROOT.glob("docs/*.md") if page.name != "index.md"]
    assert not [name for name in pages if f"({name})" not in index]


def test_every_page_is_in_the_navigation_of_the_site():
    named = re.findall(r"^      - [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    root = {"README.md": "index.md"}  # the page in docs/ of that name is pages.md there
    expected = {root.get(page.name, page.name.lower()) for page in ROOT.glob("*.md")}
    expected |= {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert len(named) == len(set(named))
    assert set(named) == expected | {"pages.md", "command-line.md", "python-api.md"}


def test_the_site_is_built_without_a_warning(tmp_path):
    python = ROOT / "build/docs-venv/bin/python"
    if not python.exists():
        pytest.skip("no mkdocs in build/docs-venv: `make docs` installs it")
    command = [python, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "altorch explain" in (tmp_path / "command-line.html").read_text()
    reference = (tmp_path / "python-api.html").read_text()
    for name in ("altorch.survivors", "altorch._C.Window.put", "altorch.ops.scan", "altorch.objects.install"):
        assert f'id="{name}"' in reference


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "cmake/site/python_api.md").read_text()
    public = set(package.__all__) - {"__version__"}
    assert not [name for name in public if not re.search(rf"\b{name}\b", page)]


def test_every_thread_is_described():
    sources = "".join(path.read_text() for path in (ROOT / "csrc").rglob("*.cpp"))
    names = set(re.findall(r'"(al-[a-z-]+)"', sources))
    described = (ROOT / "docs" / "threading.md").read_text()
    assert names and not [name for name in names if f"`{name}`" not in described]


@pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
@pytest.mark.parametrize("command", ["settings", "routes"])
def test_a_generated_page_is_current(command):
    page = (ROOT / "docs" / f"{command}.md").read_text()
    assert page == altorch(command, "--markdown"), (
        f"write it anew: altorch {command} --markdown > docs/{command}.md"
    )


def test_code_of_examples_is_what_is_compiled():
    page = (ROOT / "docs/extending.md").read_text()
    quoted = re.findall(r"<!-- (\S+) \[(\w+)\] -->\n```cpp\n(.*?)\n```", page, re.DOTALL)
    assert len(quoted) == page.count("```cpp")
    for path, name, code in quoted:
        _, compiled, _ = (ROOT / path).read_text().split(f"// [{name}]\n")
        assert code == compiled.rstrip(), path


def test_every_source_names_its_license():
    suffixes = {".cpp", ".h", ".cuh", ".c", ".inc", ".py", ".pyi", ".cmake", ".sh"}
    folders = ("csrc", "python/altorch", "cmake", "tests", "benchmarks", "examples")
    generated = {"_build_info.py"}
    bare = [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.name not in generated and path.stat().st_size
        if "SPDX-License-Identifier: BSD-3-Clause" not in path.read_text(errors="replace")[:200]
    ]
    assert not bare, bare
