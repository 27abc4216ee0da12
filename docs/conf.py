"""How Sphinx builds these pages: `python -m sphinx -W docs docs/_build`. Nothing is fetched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not installed
sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from commands import markdown
from sphinx.application import Sphinx

import fedcal
from experiments.studies.texts import complete
from fedcal import mechanisms, metrics, privacy

project = "fedcal"
author = "the fedcal authors"
release = version = fedcal.__version__
copyright = "2026, the fedcal authors; Apache-2.0"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "extensions", "jupyter_execute", "_templates"]
templates_path = ["_templates"]

# Markdown. The notebook is shown as it is stored; a test executes it.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they would be fetched from elsewhere
suppress_warnings = [
    "mystnb.unknown_mime_type",
    "ref.python",  # an attribute called like those of other classes
]

# Reference. Packages that a reader of the docs need not have are never imported.
autodoc_mock_imports = ["torch", "opacus", "ray", "sklearn", "onnx", "onnxruntime", "pyarrow"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_type_aliases = {name: name for name in ("Floats", "Integers", "Words", "ArrayLike")}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False
napoleon_use_ivar = True
default_role = "literal"  # a name in `backticks` is a name, as in Markdown
toc_object_entries_show_parents = "hide"
viewcode_line_numbers = True

# Autodoc shows what a package holds: what these import when it is used is loaded beforehand.
vars(metrics).update({name: getattr(metrics, name) for name in metrics.__all__})
vars(privacy).update({name: getattr(privacy, name) for name in privacy.__all__})
for name in ("Exponential", "NoiseDistribution", "Unary"):
    vars(mechanisms)[name] = getattr(mechanisms, name)

# A reference to something of ours that does not exist is an error; other projects' are plain text.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!fedcal\b).*"),
    (r"py:.*", r".*\._.*"),  # private bases and modules: their members are shown where used
    (r"py:class", r"fedcal\.secure_aggregation\.messages\.Contribution"),
    (r"py:class", r"fedcal\.privacy\.ledger\.Entry"),
    (r"py:class", r"fedcal\.(storage\.artifact|core\.checks)\.(T|Name|Given)"),
    (r"py:class", r"fedcal\.core\.numerics\.(Item|Result)"),
    (r"py:class", r"fedcal\.(core\.options|run\.config)\.(Call|Table)"),
    (r"py:class", r"fedcal\.metrics\.bootstrap\.Name"),
    (r"py:class", r"fedcal\.evaluation\.sites\.site_tests\.Sites"),
    (r"py:class", r"fedcal\.evaluation\.intervals\.(Metric|Span)"),
    (r"py:class", r"fedcal\.clients\.site\.party\.Party"),
    (r"py:class", r"fedcal\.run\.engines\.ray\.NamedData"),
]

html_theme = "furo"
html_title = f"fedcal {release}"
html_static_path = ["_static"]
html_css_files = ["fedcal.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_context = {"published": "FEDCAL_DOCS_PUBLISHED" in os.environ}  # a link to other versions
_sidebar = ("scroll-start", "brand", "search", "navigation", "versions", "scroll-end")
html_sidebars = {"**": [f"sidebar/{part}.html" for part in _sidebar]}


EVERY_TABLE = "<!-- every claim and table follows here when the site is built -->"


def _complete(_: Sphinx, page: str, source: list[str]) -> None:
    """Add the commands' help to their page, and all tables of a study to its page."""
    folder, _, name = page.rpartition("/")
    if page == "reference/commands":
        source[0] += "\n".join(["", *markdown()])
    elif folder == "results" and EVERY_TABLE in source[0]:
        source[0] += f"\n{complete(name)}\n"


def setup(app: Sphinx) -> None:
    """Connect the pages that are completed when they are built."""
    app.connect("source-read", _complete)
