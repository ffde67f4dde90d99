"""How Sphinx makes the site; `docs/site.py` puts the pages together before."""

project = "wattkeeper"
copyright = "the wattkeeper authors; Apache-2.0"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "wattkeeper"
html_show_sourcelink = False
pygments_style = "default"
