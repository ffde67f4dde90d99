"""Terminal tables of the comparison of results folders."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from wattkeeper.scenarios.analysis.compare import LEVEL, is_significant
from wattkeeper.scenarios.analysis.vocabulary import format_value
from wattkeeper.scenarios.spec.wording import count, percent, unlisted

MOST_ROWS = 40
"""Rows of a table, and lines of a list; --json has all."""

MAIN = ("energy_j", "cluster_energy_j", "time_s", "cost", "jct_s", "queue_delay_s")
"""Metrics that the sentence prefers."""

WIDEST = 50
"""Characters of a scenario's value, at most."""

NOTE = (
    "change: mean of the ratios seed by seed, with its 95 % interval. d_z: mean difference over "
    "its standard deviation, seed by seed. verdict: of this one comparison; (alone): not among all "
    f"that differ here (Holm, {100 * LEVEL:g} %)."
)


def print_comparison(console: Console, content: Mapping[str, Any]) -> None:
    """Print each comparison: its verdict, differences of the scenarios, and metrics that differ."""
    console.print(_describe("reference", content["reference"]), style="dim")
    for comparison in content["comparisons"]:
        console.print(_describe("compared with it", comparison["other"]), style="dim")
        console.print(_summarise(comparison), style="bold")
        for line in _notes(comparison):
            console.print(line, style="yellow")
        differ = [row for row in comparison["rows"] if row["verdict"] not in (None, "identical")]
        if differ:
            console.print(_table(differ))
    if any(comparison["differ"] for comparison in content["comparisons"]):
        console.print(NOTE, style="dim")


def _summarise(comparison: Mapping[str, Any]) -> str:
    """The verdict of a comparison in one sentence."""
    compared, differ = comparison["compared"], comparison["differ"]
    unmatched = comparison["only_reference"] or comparison["only_other"]
    of_both = " in what both have" if unmatched else ""
    some = f"{differ} of {count(compared, 'comparison')}"
    match comparison["verdict"]:
        case "identical" if comparison["identical"]:
            return "The results are identical, all tables of them (results_digest)."
        case "identical":
            return f"All {count(compared, 'metric')} of whole runs are identical{of_both}."
        case "noise":
            return (
                f"They differ only by noise{of_both}: {some} differ, none of them by more than "
                "chance explains."
            )
        case "undecided":
            significant = sum(map(is_significant, comparison["rows"]))
            return (
                f"Undecided{of_both}: {some} differ, {significant} of them significantly by "
                "themselves, none when adjusted for their number. Run more seeds (--seeds)."
            )
        case "one seed":
            return (
                f"They differ{of_both}: {some}. One seed cannot tell that from noise: run both "
                "with more (--seeds 5)."
            )
        case _:
            held = comparison["hold"]
            return f"They differ{of_both}: {held} of {count(compared, 'comparison')} by more " + (
                f"than noise{_largest(comparison['rows'])}."
            )


def _largest(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest change beyond noise, preferably of a metric of MAIN."""
    held = [row for row in rows if row["holds"] and row["ratio"] is not None]
    held = [row for row in held if row["metric"] in MAIN] or held
    if not held:
        return ""
    row = max(held, key=lambda row: abs(row["ratio"] - 1))
    return f", most of all {row['metric']} of {_run(row)}: {percent(row['ratio'] - 1, fine=True)} %"


def _describe(role: str, about: Mapping[str, Any]) -> str:
    failed = len(about["failed_points"])
    without = f", {count(failed, 'point')} without results" if failed else ""
    return f"{role}: {about['folder']} ({about['scenario']}, {about['backend']}{without})"


def _notes(comparison: Mapping[str, Any]) -> Iterator[str]:
    differences = comparison["differences"]
    for row in differences[:MOST_ROWS]:
        yield f"  {row['path']}: {_short(row['reference'])} -> {_short(row['other'])}"
    yield from _more(differences)
    for side, where in (("only_reference", "the reference"), ("only_other", "the other")):
        for name in comparison[side][:MOST_ROWS]:
            yield f"  only in {where}: {name}"
        yield from _more(comparison[side])
    if any(row["metric"] == "jobs" and row["difference"] for row in comparison["rows"]):
        yield "  other jobs were run: the pairs of a seed do not share their random draws"
    if comparison["only_reference"] or comparison["only_other"]:
        yield f"  seeds of both: {', '.join(map(str, comparison['seeds']))}"
    absent = [row for row in comparison["rows"] if row["verdict"] is None]
    if absent:
        names = ", ".join(dict.fromkeys(row["metric"] for row in absent))
        yield f"  not compared, without values or under another eta: {names}"


def _more(rows: Sequence[object]) -> Iterator[str]:
    if rest := unlisted(len(rows), MOST_ROWS):
        yield f"  {rest}"


def _short(value: object) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _run(row: Mapping[str, Any]) -> str:
    values = ", ".join(f"{path}={value}" for path, value in row.get("point", {}).items())
    return f"{row['variant']} ({values})" if values else str(row["variant"])


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows that differ; where there are many, the most significant ones."""
    shown = sorted(range(len(rows)), key=lambda i: (rows[i]["p_holm"] or 0, i))[:MOST_ROWS]
    table = Table(caption=unlisted(len(rows), MOST_ROWS) or None)
    for title in ("variant", "metric", "reference", "other", "change", "d_z", "verdict"):
        left = title in ("variant", "metric", "verdict")
        table.add_column(title, justify="left" if left else "right", no_wrap=title != "variant")
    before = ""
    for row in (rows[index] for index in sorted(shown)):
        run = _run(row)
        verdict = row["verdict"] + " (alone)" * (is_significant(row) and not row["holds"])
        cells = (row["metric"], *(_number(row[side], row) for side in ("reference", "other")),
                 _change(row), _effect(row["effect"]), verdict)  # fmt: skip
        table.add_row("" if run == before else run, *cells)
        before = run
    return table


def _change(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return f"{row['difference']:+.4g}"
    bounds = ", ".join(percent(bound - 1, fine=True) for bound in row["ci95"] or ())
    return f"{percent(row['ratio'] - 1, fine=True)} %" + f" [{bounds}]" * bool(bounds)


def _number(value: float | None, row: Mapping[str, Any]) -> str:
    if value is None or row["unit"] in ("J", "s"):
        return format_value(value, row["metric"])
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _effect(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.1f}" if abs(value) < 10 else "> 10" if value > 0 else "< -10"
