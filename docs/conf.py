# ruff: noqa: INP001 - a folder of pages, not a package
"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Punctuation, String, Text, Whitespace

import kdns

project = "kdns"
author = "The kdns authors"
version = release = kdns.__version__
root_doc = "docs/index"
include_patterns = ["docs/**.md", "deploy/README.md", "*.md"]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "kdns"
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = False


class CorefileLexer(RegexLexer):
    """Highlights Corefiles: the first word of a line is a directive, an option or a zone."""

    name = "Corefile"
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#.*", Comment),
            (r'"(?:\\.|[^"\\])*"', String),
            (r"[{}]", Punctuation),
            (r"(?m)(?<=^)[^\s{}\"#]+|(?<=\n)[ \t]*[^\s{}\"#]+", Keyword),
            (r"[^\s{}\"]+", Text),
        ]
    }


def setup(app: Any) -> None:
    """Adds the lexer of Corefiles."""
    app.add_lexer("corefile", CorefileLexer)
