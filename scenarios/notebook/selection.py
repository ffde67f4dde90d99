"""Some variants of results, in an order of choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.notebook.colours import VariantStyle


@dataclass(frozen=True, repr=False)
class SelectedStudy(Study):
    """A study with some of its variants.

    Attributes:
        whole: The study with all of them.
    """

    whole: Study
    manifest: Manifest
    summary: Json

    @override
    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        read = None if columns is None else list(dict.fromkeys([*columns, "variant"]))
        table = self.whole.table(name, read)
        names = pa.array(list(self.summary["variants"]), table["variant"].type)
        rows = table.filter(pc.is_in(table["variant"], value_set=names))
        return rows if columns is None else rows.select(list(columns))


def select_styles(known: Sequence[str], variants: Sequence[str] | None) -> list[VariantStyle]:
    """The styles of some variants, in their order, or of all.

    Raises:
        InputError: If the results have no such variant, or none is given.
    """
    styles = {name: VariantStyle(name, number) for number, name in enumerate(known)}
    if variants is None:
        return list(styles.values())
    absent = [name for name in variants if name not in styles]
    if absent or isinstance(variants, str) or not variants:
        found = variants if isinstance(variants, str) else ", ".join(absent) or "none"
        text = "must be a list of some of"
        raise InputError(f"variants: found {found}; {text} {', '.join(known)}")
    return [styles[name] for name in dict.fromkeys(variants)]


def select_study(study: Study, styles: Sequence[VariantStyle]) -> Study:
    """The study with these variants alone."""
    names = [style.name for style in styles]
    if names == list(study.summary["variants"]):
        return study
    return SelectedStudy(study, study.manifest, select_summary(study.summary, names))


def select_summary(summary: Json, names: Sequence[str]) -> Json:
    """A summary whose whole runs are those of these variants."""
    variants = summary["variants"]
    return {**summary, "variants": {name: variants[name] for name in names if name in variants}}
