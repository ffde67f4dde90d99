"""Terminal tables of predicted against measured attempts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from wattkeeper.scenarios.analysis.sim_vs_live import CHOSEN, METRICS
from wattkeeper.scenarios.spec.wording import count, percent, unlisted

ABSENT = {"measured": None, "predicted": None}

MOST_ROWS = 20
"""Rows of a list; --json has all."""


def print_comparison(console: Console, content: Mapping[str, Any]) -> None:
    """Print the errors of predictions, and the decisions that differ."""
    for side in ("measured", "predicted"):
        about = content[side]
        console.print(
            f"{side}: {about['folder']} ({about['scenario']}, {about['backend']})", style="dim"
        )
    for line in _warnings(content):
        console.print(line, style="bold yellow")
    console.print(_errors(content["errors"]))
    console.print(
        "Of attempts that ran with the same batch size, limit and clock throughout. mean: with its "
        "sign, above 0 where too much was predicted. size: without its sign.",
        style="dim",
    )
    console.print(_totals(content["totals"]))
    decisions = content["decisions"]
    console.print(
        f"{len(decisions['differ'])} of {decisions['compared']} attempts ran with "
        "another batch size, limit or clock than predicted."
    )
    if decisions["retuned"]:
        console.print(
            f"Knobs of {count(decisions['retuned'], 'attempt')} changed after the start: "
            "their limits and clocks are not compared, nor errors."
        )
    if decisions["differ"]:
        console.print(_decisions(decisions["differ"]))
    console.print(_attempts(content["attempts"]))


def _warnings(content: Mapping[str, Any]) -> Iterator[str]:
    differences = content["differences"]
    if differences:
        yield f"The scenarios differ in {count(len(differences), 'place')}:"
        for row in differences[:MOST_ROWS]:
            yield f"  {row['path']}: {_value(row['measured'])}, {_value(row['predicted'])}"
        if rest := unlisted(len(differences), MOST_ROWS):
            yield f"  {rest}"
    for side, absent in content["absent"].items():
        if absent:
            every = content["decisions"]["compared"]
            yield f"Energy is absent in {absent} of {every} attempts that were {side}."
    for side in ("measured", "predicted"):
        rows = content[f"only_{side}"]
        if rows:
            named = ", ".join(_label(row) for row in rows[:3])
            yield f"{len(rows)} attempts were only {side}: {named}" + ", ..." * (len(rows) > 3)


def _value(value: object) -> str:
    return "not there" if value is None else str(value)


def _errors(errors: Mapping[str, Any]) -> Table:
    table = Table(title="Relative error of the prediction")
    table.add_column("workload")
    for title in ("metric", "attempts", "mean", "mean size", "median size", "95 % below"):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    parts = {"all": errors["all"]}
    if len(errors["by_workload"]) > 1:
        parts |= {name or "(none)": part for name, part in errors["by_workload"].items()}
    for workload, part in parts.items():
        label = workload
        for metric in METRICS:
            row = part[metric]
            cells = [_error(row[n]) for n in ("mean", "mean_size", "median_size", "p95_size")]
            cells[1:] = [cell.lstrip("+") for cell in cells[1:]]
            table.add_row(label, metric, str(row["n"]), *cells)
            label = ""
        table.add_section()
    return table


def _totals(totals: Mapping[str, Any]) -> Table:
    table = Table(title="Sums over all attempts that both have")
    for title in ("metric", "measured", "predicted", "error"):
        table.add_column(title, justify="left" if title == "metric" else "right")
    for metric, row in totals.items():
        shown = [_number(row[side]) for side in ("measured", "predicted")]
        table.add_row(metric, *shown, _error(row["error"]))
    return table


def _decisions(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Decisions that differ", caption=unlisted(len(rows), MOST_ROWS) or None)
    names = [name for name in CHOSEN if any(row[name] != ABSENT for row in rows)]
    for title in ("attempt", *names):
        table.add_column(title)
    for row in rows[:MOST_ROWS]:
        cells = (
            f"{_value(row[name]['measured'])}, predicted {_value(row[name]['predicted'])}"
            if name in row["differ"]
            else _value(row[name]["measured"])
            for name in names
        )
        table.add_row(_label(row), *cells)
    return table


def _attempts(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title="Attempts: measured, and the error of the prediction",
        caption=unlisted(len(rows), MOST_ROWS) or None,
    )
    table.add_column("attempt")
    for title in ("batch size", "epochs", "time_s", "energy_j"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows[:MOST_ROWS]:
        cells = [_pair(row["batch_size"]), _pair(row["epochs"])]
        for metric in ("time_s", "energy_j"):
            cells.append(f"{_number(row[metric]['measured'])} {_error(row[metric]['error'])}")
        table.add_row(_label(row), *cells)
    return table


def _pair(values: Mapping[str, Any]) -> str:
    measured, predicted = _value(values["measured"]), _value(values["predicted"])
    return measured if measured == predicted else f"{measured}, predicted {predicted}"


def _label(row: Mapping[str, Any]) -> str:
    attempt = f" attempt {row['attempt']}" if row["attempt"] > 1 else ""
    return f"{row['variant']} seed {row['seed']}: {row['job_id']}{attempt}"


def _number(value: float | None) -> str:
    return "absent" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{percent(value)} %"
