"""The site: ``make docs`` builds it into ``docs/_build/html``, without a network."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small fits are faster so

import unbag  # noqa: E402, F401  the gallery and the reference import it; fail early if it is missing

project = "unbag"
author = "The unbag developers"
copyright = "The unbag developers"  # noqa: A001

extensions = [
    "measured",
    "mathml",
    "myst_parser",
    "numpydoc",
    "notebooks",
    "reference",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "**/sg_execution_times.rst"]
templates_path = ["_templates"]
nitpicky = True
suppress_warnings = ["config.cache"]  # the gallery's order is a class, which cannot be cached

# Markdown
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # -- is an option, and not a dash
highlight_language = "none"  # blocks without a language are files, commands and output

# Reference
autosummary_generate = True
autodoc_typehints = "none"  # docstrings say what parameters are
numpydoc_show_class_members = False  # the template of classes lists them

# Cookbook
sphinx_gallery_conf = {
    "examples_dirs": "../examples/cookbook",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/[^_]\w+\.py$",
    "ignore_pattern": r"/_\w+\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 10**9,
    "abort_on_example_error": True,
    "first_notebook_cell": "%matplotlib inline",
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "unbag"
html_static_path = ["_static"]
html_css_files = ["unbag.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "secondary_sidebar_items": ["page-toc"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"start": []}
