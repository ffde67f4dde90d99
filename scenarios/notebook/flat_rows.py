"""Results as rows of plain values, for frames and CSV files."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import finished_points, read_sweep
from wattkeeper.scenarios.spec.wording import axis_text
from wattkeeper.sim.cluster_results.registry import METRICS

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How texts begin that spreadsheets take for formulas."""

INTERVALS: Final = ("ci95", "difference_ci95")
"""Entries with both bounds of an interval, or None."""


def flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without nested values: a column for each bound of an interval and each inner key.

    The values of a sweep's axes (`point`) have the paths of their axes as columns.
    """
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if key in INTERVALS:
            low, high = value or (None, None)
            flat |= {f"{key}_low": low, f"{key}_high": high}
        elif key == "point":
            flat |= {path: _plain(inner) for path, inner in value.items()}
        elif isinstance(value, Mapping):
            flat |= {f"{key}_{inner}": _plain(of) for inner, of in value.items()}
        else:
            flat[key] = ", ".join(value) if isinstance(value, list) else value
    return flat


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | float) else axis_text(value)


def comparison_rows(comparison: Json) -> list[dict[str, Any]]:
    """A row for each variant and metric of a comparison, or for each attempt of a live run.

    Args:
        comparison: Of `wattkeeper.scenarios.analysis.compare.compare_with`, or of
            `wattkeeper.scenarios.analysis.sim_vs_live.compare`.
    """
    rows = comparison["rows"] if "rows" in comparison else comparison["attempts"]
    return [flatten(row) for row in rows]


def summary_rows(summary: Json) -> Iterator[dict[str, Any]]:
    """A row for each metric of each variant and of its parts, against the variant's baseline."""
    parts = {("", ""): summary["variants"]}
    parts |= {(key, part): own for key, all_ in summary["by"].items() for part, own in all_.items()}
    for (key, part), variants in parts.items():
        for name, about in variants.items():
            for metric, statistics in about["metrics"].items():
                unit = METRICS[metric].unit if metric in METRICS else None
                place = {"variant": name, "by": key, "part": part, "metric": metric, "unit": unit}
                versus = {
                    f"versus_{entry}": value
                    for entry, value in flatten(about["versus"][metric]).items()
                }
                baseline = {"baseline": about["versus"]["baseline"]}
                yield place | flatten(statistics) | baseline | versus


def sweep_content(folder: Path) -> Json:
    """`sweep.json` with the summary of each variant at each point that was just finished."""
    about = read_sweep(folder)
    for point in about["points"]:
        point["variants"] = None
    for point, study in finished_points(folder, about, check=False):
        point["variants"] = study.summary["variants"]
    return about


def sweep_rows(folder: Path) -> Iterator[Json]:
    """A row for each metric at each point that was just finished; see `summary_rows`."""
    for point, study in finished_points(folder, read_sweep(folder), check=False):
        place = {"point": point["id"]} | flatten({"point": point["values"]})
        yield from (place | row for row in summary_rows(study.summary))


def escape_formula(value: Any) -> Any:
    """The value; of a text that a spreadsheet would take for a formula, `'` and the text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with a line of names; absent values are empty, numbers have all digits.

    Columns are those of all rows, in the order in which they first occur. No text is a formula.
    """
    listed = [
        {escape_formula(column): escape_formula(value) for column, value in row.items()}
        for row in rows
    ]
    columns = list(dict.fromkeys(column for row in listed for column in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return text.getvalue()
