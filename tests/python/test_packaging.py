# SPDX-License-Identifier: BSD-3-Clause
"""What an installed altorch consists of, and what its packages ask for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
import locate  # noqa: E402

PYPROJECT = (ROOT / "pyproject.toml").read_text()
TORCHS = f">={'.'.join(map(str, locate.OLDEST_TORCH))},<{locate.NEWEST_TORCH[0]}.{locate.NEWEST_TORCH[1] + 1}"


def test_every_package_is_listed():
    listed = set(
        re.findall(r'"(altorch[\w.]*)"', re.search(r"^packages = (.*)$", PYPROJECT, re.MULTILINE)[1])
    )
    found = {
        ".".join(path.parent.relative_to(ROOT / "python").parts)
        for path in ROOT.glob("python/**/__init__.py")
    }
    assert listed == found


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("packaging/conda/recipe.yaml", f"pytorch {TORCHS}"),
        (
            "packaging/spack/package.py",
            "py-torch@{}.{}:{}.{}".format(*locate.OLDEST_TORCH, *locate.NEWEST_TORCH),
        ),
        ("docs/install.md", "torch | {}.{} to {}.{}".format(*locate.OLDEST_TORCH, *locate.NEWEST_TORCH)),
    ],
)
def test_recipes_name_the_torchs_that_the_build_takes(file, wanted):
    text = (ROOT / file).read_text()
    assert wanted in text
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "python/altorch/_version.py").read_text())[1]
    assert file.endswith("package.py") or version in text


def test_the_wheel_maker_explains_itself():
    done = subprocess.run(
        [sys.executable, ROOT / "cmake/make_wheel.py", "--help"], capture_output=True, text=True, check=True
    )
    assert "2.11" in done.stdout and "--torchs" in done.stdout
