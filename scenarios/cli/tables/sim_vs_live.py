"""Predicted against measured on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from wattkeeper.scenarios.analysis.sim_vs_live import CHOSEN, METRICS
from wattkeeper.scenarios.spec.wording import count, percent, unlisted

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20
"""Of all rows of a list; the rest is in the JSON."""


def show(console: Console, found: Mapping[str, Any]) -> None:
    """Print how far predictions are from what was measured, and which decisions differ."""
    for side in ("measured", "predicted"):
        about = found[side]
        console.print(f"{side}: {escape(about['folder'])} ({about['scenario']}, "
                      f"{about['backend']})", style="dim")  # fmt: skip
    for line in _warnings(found):
        console.print(escape(line), style="bold yellow")
    console.print(_errors(found["errors"]))
    console.print(
        "Of attempts that ran with the same batch size and limit. mean: with its sign, above 0 "
        "where too much was predicted. size: without its sign.",
        style="dim",
    )
    console.print(_totals(found["totals"]))
    decisions = found["decisions"]
    console.print(f"{len(decisions['differ'])} of {decisions['compared']} attempts ran with "
                  "another batch size or limit than predicted.")  # fmt: skip
    if decisions["differ"]:
        console.print(_decisions(decisions["differ"]))
    console.print(_attempts(found["attempts"]))


def _warnings(found: Mapping[str, Any]) -> Iterator[str]:
    differences = found["differences"]
    if differences:
        yield f"The scenarios differ in {count(len(differences), 'place')}:"
        for row in differences[:SHOWN]:
            yield f"  {row['path']}: {_value(row['measured'])}, {_value(row['predicted'])}"
        yield from _more(differences)
    for side, absent in found["absent"].items():
        if absent:
            every = found["decisions"]["compared"]
            yield f"Energy is absent in {absent} of {every} attempts that were {side}."
    for side in ("measured", "predicted"):
        rows = found[f"only_{side}"]
        if rows:
            named = ", ".join(_label(row) for row in rows[:3])
            yield f"{len(rows)} attempts were only {side}: {named}" + ", ..." * (len(rows) > 3)


def _value(value: object) -> str:
    return "not there" if value is None else str(value)


def _more(rows: Sequence[object]) -> Iterator[str]:
    if said := unlisted(len(rows), SHOWN):
        yield f"  {said}"


def _errors(errors: Mapping[str, Any]) -> Table:
    table = Table(title="Relative error of the prediction")
    table.add_column("workload")
    for title in ("metric", "attempts", "mean", "mean size", "median size", "95 % below"):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    parts = {"all": errors["all"]}
    if len(errors["by_workload"]) > 1:
        parts |= {name or "(none)": part for name, part in errors["by_workload"].items()}
    for workload, part in parts.items():
        for at, metric in enumerate(METRICS):
            row = part[metric]
            cells = [_error(row[n]) for n in ("mean", "mean_size", "median_size", "p95_size")]
            cells[1:] = [cell.lstrip("+") for cell in cells[1:]]
            table.add_row(escape(workload) if not at else "", metric, str(row["n"]), *cells)
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
    table = Table(title="Decisions that differ", caption=unlisted(len(rows), SHOWN) or None)
    for title in ("attempt", *CHOSEN):
        table.add_column(title)
    for row in rows[:SHOWN]:
        cells = (
            f"{_value(row[name]['measured'])}, predicted {_value(row[name]['predicted'])}"
            if name in row["differ"]
            else _value(row[name]["measured"])
            for name in CHOSEN
        )
        table.add_row(escape(_label(row)), *cells)
    return table


def _attempts(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title="Attempts: measured, and the error of the prediction",
        caption=unlisted(len(rows), SHOWN) or None,
    )
    table.add_column("attempt")
    for title in ("batch size", "epochs", "time_s", "energy_j"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows[:SHOWN]:
        cells = [_pair(row["batch_size"]), _pair(row["epochs"])]
        for metric in ("time_s", "energy_j"):
            seen = row[metric]
            cells.append(f"{_number(seen['measured'])} {_error(seen['error'])}")
        table.add_row(escape(_label(row)), *cells)
    return table


def _pair(seen: Mapping[str, Any]) -> str:
    measured, predicted = _value(seen["measured"]), _value(seen["predicted"])
    return measured if measured == predicted else f"{measured}, predicted {predicted}"


def _label(row: Mapping[str, Any]) -> str:
    tried = f" attempt {row['attempt']}" if row["attempt"] > 1 else ""
    return f"{row['variant']} seed {row['seed']}: {row['job_id']}{tried}"


def _number(value: float | None) -> str:
    return "absent" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{percent(value)} %"
