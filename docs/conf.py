"""The site: `make docs`. What it has beyond the Markdown files is in `generating`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "forgetscope"
version = release = version_of("forgetscope")
copyright = "the forgetscope authors"
language = "en"  # of en_GB the search cannot count: Sphinx gives its plurals as true and false, which are no index
extensions = ["myst_parser", "generating"]
exclude_patterns = ["_build", "generating", "static"]
smartquotes = False  # two hyphens are an option
nitpicky = True  # a reference to nothing is a warning, and a warning ends the build

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4  # as a code host has them
html_math_renderer = "native"

html_theme = "furo"
html_title = "forgetscope"
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"footer_icons": []}
# From a file no page can be fetched to show where in it the words are; without this, each hit would leave an error.
html_js_files = ["site.js", (None, {"body": "DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== 'file:';"})]
