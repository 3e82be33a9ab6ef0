"""How Sphinx builds the documentation: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

project = "thermint"
author = "The thermint authors"
copyright = author
version = release = installed_version("thermint")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = f"thermint {version}"
html_show_copyright = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Pages. Runs of code on them are the tests' business (tests/test_docs.py); notebooks are run here.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]  # of progress bars

# Docstrings.
default_role = "py:obj"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True


def inline_math(translator: Any, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers show without a script, by the converter of docutils."""
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def display_math(translator: Any, node: nodes.math_block) -> None:
    """Write a formula of its own line."""
    style = "overflow: auto hidden; padding: 0.3em 0"  # else browsers show a vertical scroll bar beside a formula
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="math" style="{style}">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline_math, None), block_renderers=(display_math, None))
