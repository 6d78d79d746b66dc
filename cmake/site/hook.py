# SPDX-License-Identifier: BSD-3-Clause
"""The hook of mkdocs.yml: makes a site of pages that are written for a code host.

The pages keep their places and their relative links. This hook adds the pages at the root of the repository, pages
that are generated (command line, Python API) and the sources that a page links to, maps links between them, and
rewrites the few constructs that Python-Markdown reads differently than CommonMark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "cmake" / "site"
# Pages of the repository that have another place on the site: README.md is the home page.
MOVED = {
    "README.md": "index.md",
    "docs/index.md": "pages.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(\[[^\[\]]*\])\(([^)\s]+)\)")
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r"( *)([-*]|\d+\.) ")
LANGUAGES = {".py": "python", ".sh": "sh", ".cpp": "cpp", ".h": "cpp", ".toml": "toml"}

# By place on the site: the path in the repository, and the reverse.
_repository_path: dict[str, str] = {}
_site_path: dict[str, str] = {}
# Of the navigation, by place on the site.
_titles: dict[str, str] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    version = (ROOT / "python/altorch/_version.py").read_text()
    config.site_name = "altorch " + re.search(r'__version__ = "([^"]+)"', version)[1]
    for section in config.nav:
        for entries in section.values():
            _titles.update((place, title) for entry in entries for title, place in entry.items())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    _repository_path.clear()
    _site_path.clear()
    for file in list(files):
        if f"docs/{file.src_uri}" in MOVED:
            files.remove(file)
        else:
            _place(f"docs/{file.src_uri}", file.src_uri)
    for path, place in MOVED.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        _place(path, place)
    _place("cmake/site/python_api.md", "python-api.md")
    api = str(SITE / "python_api.md")
    files.append(File.generated(config, "python-api.md", abs_src_path=api))
    files.append(File.generated(config, "command-line.md", content=_command_line()))
    for name in ("site.css", "iframe-worker.js"):
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(SITE / name)))
    pages = [file for file in files if file.is_documentation_page() and file.src_uri in _repository_path]
    for page in pages:
        for target in _linked_sources(_repository_path[page.src_uri], page.content_string):
            files.append(_source(config, target))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    if place in _repository_path:
        markdown = _outside_fences(markdown, lambda text: _with_links(text, place))
    return _as_python_markdown(markdown)


def _place(path: str, place: str) -> None:
    _repository_path[place] = path
    _site_path[path] = place


def _command_line() -> str:
    done = subprocess.run(
        [sys.executable, str(SITE / "command_line.py")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PluginError(f"cmake/site/command_line.py failed:\n{done.stderr}")
    return done.stdout


def _target(page: str, link: str) -> tuple[str, str]:
    """The path in the repository that a link of this page leads to ("" outside of it), and the anchor."""
    path, _, anchor = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return "", anchor
    return os.path.normpath(PurePosixPath(page).parent / path), anchor


def _linked_sources(page: str, text: str) -> list[str]:
    """The files that the page links to and that the site does not have yet."""
    found = {_target(page, link[2])[0] for link in LINK.finditer(_without_fences(text))}
    return sorted(path for path in found if path and path not in _site_path and (ROOT / path).is_file())


def _source(config: MkDocsConfig, path: str) -> File:
    """A page with the code, or the file itself where it is data."""
    language = LANGUAGES.get(PurePosixPath(path).suffix)
    if language is None:
        _place(path, f"source/{path}")
        return File.generated(config, f"source/{path}", abs_src_path=str(ROOT / path))
    _place(path, f"source/{path}.md")
    code = (ROOT / path).read_text()
    content = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n# {path}\n\n````{language}\n{code}````\n"
    return File.generated(config, f"source/{path}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def _with_links(text: str, place: str) -> str:
    """Links of the repository become links of the site; a folder of the repository keeps its name alone."""
    page = _repository_path[place]

    def mapped(match: re.Match[str]) -> str:
        label, link = match[1], match[2]
        path, anchor = _target(page, link)
        if not path:
            return match[0]
        if path in _site_path:
            there = os.path.relpath(_site_path[path], PurePosixPath(place).parent)
            if label[1:-1].endswith(".md"):  # the name of a file: the site shows the name of the page
                label = f"[{_titles.get(_site_path[path], label[1:-1])}]"
            return f"{label}({there}{'#' + anchor if anchor else ''})"
        return f"`{label[1:-1]}`" if (ROOT / path).is_dir() else match[0]

    return LINK.sub(mapped, text)


def _outside_fences(text: str, change) -> str:
    parts, inside = [], False
    for block in re.split(r"(^ *```.*$)", text, flags=re.MULTILINE):
        if FENCE.match(block):
            inside = not inside
            parts.append(block)
        else:
            parts.append(block if inside else change(block))
    return "".join(parts)


def _without_fences(text: str) -> str:
    parts: list[str] = []
    _outside_fences(text, lambda block: parts.append(block) or block)
    return "".join(parts)


def _as_python_markdown(text: str) -> str:
    """Python-Markdown wants a blank line before lists and tables, and four spaces for what belongs to an item."""
    lines: list[str] = []
    fenced, width = False, 0  # width: of the marker of the list item that this line may belong to
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            item = ITEM.match(line)
            starts_list = item and before.strip() and not (width or ITEM.match(before))
            starts_table = line.startswith("|") and before.strip() and not before.startswith("|")
            if starts_list or starts_table:
                lines.append("")
            if item and not item[1]:
                width = len(item[0])
                lines.append(line)
                continue
            if line.strip() and not line.startswith(" "):
                width = 0 if not before.strip() else width
        if width and line.startswith(" " * min(width, 2)):
            line = " " * (4 - min(width, 4)) + line
        lines.append(line)
    return "\n".join(lines) + "\n"
