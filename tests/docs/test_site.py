"""The site builds without a warning, and its recipes and notebooks run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    pytest.importorskip("sphinx_gallery", reason="make docs installs what builds the site")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html", "docs", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gallery" / "1_census_districts.html").exists()
    commands = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "--validation-share" in commands
