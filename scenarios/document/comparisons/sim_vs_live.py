"""Predicted against measured attempts: errors, and decisions that differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.sim_vs_live import CHOSEN, METRICS
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import Block, Chapter, Document, Table, text_table
from wattkeeper.scenarios.spec.wording import count, percent, unlisted

ABSENT: Final = {"measured": None, "predicted": None}

MOST_ROWS: Final = 20
"""Rows of a list; --json has all."""


def describe_predictions(content: Json) -> Document:
    """The errors of predictions, and the decisions that differ.

    Args:
        content: What `wattkeeper.scenarios.analysis.sim_vs_live.compare` returned.
    """
    sides = {
        side: f"{side}: {about['folder']} ({about['scenario']}, {about['backend']})"
        for side, about in ((side, content[side]) for side in ("measured", "predicted"))
    }
    decisions = content["decisions"]
    found = [
        f"{len(decisions['differ'])} of {decisions['compared']} attempts ran with another batch "
        "size, limit or clock than predicted."
    ]
    if decisions["retuned"]:
        found.append(
            f"Knobs of {count(decisions['retuned'], 'attempt')} changed after the start: "
            "their limits and clocks are not compared, nor errors."
        )
    meaning = (
        "Of attempts that ran with the same batch size, limit and clock throughout. mean: with its "
        "sign, above 0 where too much was predicted. size: without its sign."
    )
    content_blocks: list[Block] = [
        *(blocks.Paragraph("answer", (line,)) for line in found),
        *blocks.notes(sides.values()),
        *blocks.cautions(_warnings(content)),
        _errors(content["errors"]),
        *blocks.notes([meaning]),
        _totals(content["totals"]),
    ]
    if decisions["differ"]:
        content_blocks.append(_decisions(decisions["differ"]))
    content_blocks.append(_attempts(content["attempts"]))
    name = content["measured"]["scenario"]
    return Document(
        name, "How well did the simulation predict?", [], [Chapter("answer", (), content_blocks)]
    )


def _warnings(content: Mapping[str, Any]) -> Iterator[str]:
    differences = content["differences"]
    if differences:
        yield f"The scenarios differ in {count(len(differences), 'place')}:"
        for row in differences[:MOST_ROWS]:
            yield f"{row['path']}: {_value(row['measured'])}, {_value(row['predicted'])}"
        if rest := unlisted(len(differences), MOST_ROWS):
            yield rest
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
    parts = {"all": errors["all"]}
    if len(errors["by_workload"]) > 1:
        parts |= {name or "(none)": part for name, part in errors["by_workload"].items()}
    rows = []
    for workload, part in parts.items():
        for metric in METRICS:
            row = part[metric]
            cells = [_error(row[n]) for n in ("mean", "mean_size", "median_size", "p95_size")]
            cells[1:] = [cell.lstrip("+") for cell in cells[1:]]
            rows.append((workload, metric, str(row["n"]), *cells))
    heads = ("workload", "metric", "attempts", "mean", "mean size", "median size", "95 % below")
    return text_table(heads, rows, "Relative error of the prediction")


def _totals(totals: Mapping[str, Any]) -> Table:
    rows = [
        (metric, *(_number(row[side]) for side in ("measured", "predicted")), _error(row["error"]))
        for metric, row in totals.items()
    ]
    heads = ("metric", "measured", "predicted", "error")
    return text_table(heads, rows, "Sums over all attempts that both have")


def _decisions(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = [name for name in CHOSEN if any(row[name] != ABSENT for row in rows)]
    lines = [
        (
            _label(row),
            *(
                f"{_value(row[name]['measured'])}, predicted {_value(row[name]['predicted'])}"
                if name in row["differ"]
                else _value(row[name]["measured"])
                for name in names
            ),
        )
        for row in rows[:MOST_ROWS]
    ]
    table = text_table(("attempt", *names), lines, "Decisions that differ")
    return table._replace(caption=unlisted(len(rows), MOST_ROWS))


def _attempts(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = [
        (
            _label(row),
            _pair(row["batch_size"]),
            _pair(row["epochs"]),
            *(
                f"{_number(row[metric]['measured'])} {_error(row[metric]['error'])}"
                for metric in ("time_s", "energy_j")
            ),
        )
        for row in rows[:MOST_ROWS]
    ]
    heads = ("attempt", "batch size", "epochs", "time_s", "energy_j")
    table = text_table(heads, lines, "Attempts: measured, and the error of the prediction")
    return table._replace(caption=unlisted(len(rows), MOST_ROWS))


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
