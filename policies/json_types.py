"""The type of what JSON calls an object."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
"""An object of JSON: its values by key."""
