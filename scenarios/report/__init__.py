"""The page `report.html`: what a study found, in one file that needs no network."""

from __future__ import annotations

from wattkeeper.scenarios.report.page import page
from wattkeeper.scenarios.report.sweep_page import sweep_page

__all__ = ["page", "sweep_page"]
