"""The page `report.html`: the results of a study or a sweep, in one file without network."""

from wattkeeper.scenarios.report.page import render_page, render_sweep_page

__all__ = ["render_page", "render_sweep_page"]
