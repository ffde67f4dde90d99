"""Tables of a report on a trace of jobs, for a terminal of 100 columns."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console

from wattkeeper.policies.json_types import Json
from wattkeeper.traces.describe import recorded
from wattkeeper.traces.describe.jobs import DAY_S, HOUR_S
from wattkeeper.traces.describe.text import print_list, print_table
from wattkeeper.traces.estimates import OutlivedEstimates

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
QUANTILES: Final = {"p0": "min", "p50": "median", "p100": "max"}
"""What quantiles are called where not by their name in the report."""

ROWS: Final = 12
"""Longer tables are cut to their largest rows; the JSON report has all."""


def render(report: Json, console: Console) -> None:
    """Print the sections of `describe_jobs.report`."""
    print_list("Import", _quality(report), console)
    print_list("Jobs", _facts(report), console)
    print_list("Doubts", _doubts(report), console)
    gpus = report["cluster"] and report["cluster"]["gpus"]
    recorded.render(report["recorded"], gpus, console)
    _demand(report["demand"], console)
    _durations(report, console)
    _missing(report["missing"], console)
    for title, head, key in (
        ("How jobs ended", "status", "statuses"),
        ("Queues", "queue", "queues"),
        ("GPU types asked for", "GPU type", "gpu_types"),
        ("Workloads", "workload", "workloads"),
    ):
        if set(report[key]) != {""}:
            _counts(console, title, head, report[key])
    if report["nodes"]:
        rows = (
            (row["gpu_type"], str(row["nodes"]), str(row["gpus"]), str(row["largest"]))
            for row in report["nodes"]["types"]
        )
        print_table(console, "Nodes", ("GPU type", "nodes", "GPUs", "largest node"), rows)


def _missing(missing: Mapping[str, Json], console: Console) -> None:
    rows = (
        (name.removesuffix("_s"), str(each["jobs"]), _percent(each["share"]))
        for name, each in missing.items()
    )
    print_table(console, "Missing values", ("column", "jobs without", "share"), rows)


def _quality(report: Json) -> Iterator[str]:
    quality = report["quality"]
    if not quality:
        yield "no record: rows that its source left out are not counted here"
        return
    dropped, examples = quality.get("dropped", {}), quality.get("wrong_examples", [])
    wrong = quality.get("wrong", 0)
    yield (
        f"{quality.get('rows', '?')} rows read, {quality.get('kept', '?')} kept, {wrong} malformed "
        f"and skipped, {sum(dropped.values())} dropped"
    )
    yield from (f"dropped: {count} {why}" for why, count in dropped.items())
    yield from (f"skipped: {example}" for example in examples)
    if examples and (more := wrong - quality.get("wrong_shown", len(examples))) > 0:
        yield f"skipped: {more} more"
    yield (
        f"times in the source: {quality.get('time_unit', 'unknown')}; time 0 is "
        f"{quality.get('time_origin', 'unknown')}"
    )
    yield from (f"cannot tell: {each}" for each in quality.get("cannot_tell", []))


def _facts(report: Json) -> Iterator[str]:
    groups, load, users = report["groups"], report["load"], report["users"]
    yield (
        f"{report['jobs']} jobs submitted over {report['span_s'] / 86400:.1f} days, "
        f"{report['busy_gpu_s'] / 3600:.0f} GPU hours"
    )
    yield from _arrivals(report["arrivals"])
    mean = "" if load["mean_gpus"] is None else f"{load['mean_gpus']:.1f} on average, "
    part = _percent(load["known_share"])
    of = "" if load["known_share"] == 1 else f" (from the {part} of jobs with a duration)"
    yield f"GPUs needed if no job waited: {mean}{load['peak_gpus']:g} at most{of}"
    if cluster := report["cluster"]:
        used = "" if cluster["load"] is None else f"; the others need {_percent(cluster['load'])}"
        yield (
            f"a cluster of {cluster['gpus']} GPUs: {cluster['too_large']} jobs are larger{used}"
            f"{' of its GPU time in the span' if used else ''}"
        )
        if cluster["typed"]:
            types = cluster["gpu_types"]
            more = f" and {len(types) - ROWS} others" if len(types) > ROWS else ""
            yield (
                f"{cluster['typed']} jobs name GPU types ({', '.join(types[:ROWS])}{more}): a "
                "cluster must list these types, or the scenario ignore them (workload.gpu_types: "
                "ignore)"
            )
    if nodes := report["nodes"]:
        yield f"{nodes['nodes']} nodes with {nodes['gpus']} GPUs"
    if users:
        heads = {"one": "the largest one"} | (
            {"ten": "the top ten"} if users["number"] > 10 else {}
        )
        shares = (
            f"{head} {_percent(users[f'jobs_top_{key}'])} of jobs and "
            f"{_percent(users[f'gpu_s_top_{key}'])} of GPU hours"
            for key, head in heads.items()
        )
        yield f"{users['number']} users: {'; '.join(shares)}"
    if groups["number"]:
        yield (
            f"{groups['number']} groups, the largest of {groups['largest']} jobs; "
            f"{groups['of_one_job']} of one job; {groups['without']} jobs in none"
        )
        overlap = report["overlap"]
        yield (
            f"{overlap['jobs']} jobs ({100 * overlap['share']:.0f} %) start while another one of "
            "their group runs"
        )
    if (together := report["together"])["jobs"]:
        yield (
            f"{together['jobs']} jobs ({_percent(together['share'])}) submitted at the same time "
            f"as another one, as those of a job array are, up to {together['largest']} at once"
        )
    if (fractions := report["fractions"])["jobs"]:
        yield f"{fractions['jobs']} jobs ({_percent(fractions['share'])}) on part of a GPU"


def _arrivals(arrivals: Json) -> Iterator[str]:
    if arrivals["per_h"] is None:
        return
    clock = arrivals["clock"]
    text = f"arrivals: {_rate(arrivals['per_h'])} jobs per hour"
    if hours := arrivals["by_hour"]:
        names = [f"from {hour:02}:00" if clock else f"in hour {hour}" for hour in range(24)]
        text += f"; most {_extremes(hours, names)}"
    if days := arrivals["by_weekday"]:
        names = [f"on {day}" for day in (DAYS if clock else [f"day {n}" for n in range(7)])]
        text += f"; per day most {_extremes(days, names)}"
    if hours and not clock:
        text += "; hours and days count from time 0, as its date is not known"
    yield text


def _extremes(rates: Sequence[float], names: Sequence[str]) -> str:
    most, least = (rates.index(pick(rates)) for pick in (max, min))
    return f"{names[most]} ({_rate(rates[most])}), fewest {names[least]} ({_rate(rates[least])})"


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate >= 10 else _number(rate)


def _number(value: float) -> str:
    """Three significant digits with thousands separators, no exponent."""
    if 0 < value < 0.001:
        return "< 0.001"
    decimals = 0 if value == int(value) else 2 - math.floor(math.log10(value))
    return f"{value:,.{max(decimals, 0)}f}"


def _span(seconds: float) -> str:
    """Hours or days; empty for less than an hour."""
    if seconds < HOUR_S:
        return ""
    return f"{seconds / HOUR_S:.1f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:,.1f} d"


def _doubts(report: Json) -> Iterator[str]:
    together, estimates, nodes = report["together"], report["estimates"], report["nodes"]
    for row in report["oddities"]:
        if not row["what"].startswith("jobs without"):  # these are in the table of missing values
            yield f"{row['count']} {row['what']}"
    if together["repeated"]:
        yield f"{together['repeated']} jobs repeat another one in all but their id"
    if estimates and estimates["outlived"]:
        counted = OutlivedEstimates(estimates["jobs"], estimates["outlived"])
        yield counted.describe() + (f". {doubt}" if (doubt := counted.doubt()) else "")
    if nodes:
        for key, text in (
            ("too_large", "jobs ask for more GPUs than the nodes have of their types"),
            ("over_a_node", "jobs fit on no single node"),
            ("no_such_type", "jobs ask for GPU types that no node has"),
        ):
            if nodes[key]:
                yield f"{nodes[key]} {text}"


def _demand(demand: Sequence[Json], console: Console) -> None:
    if len(demand) <= ROWS:
        parts = [(str(row["gpus"]), [row]) for row in demand]
    else:
        parts = []
        for power in range(int(demand[-1]["gpus"] - 1).bit_length() + 1):
            low, high = (1 << power >> 1) + 1, 1 << power
            rows = [row for row in demand if low <= row["gpus"] <= high or row["gpus"] == high]
            if rows:
                name = str(high) if len(rows) == 1 and rows[0]["gpus"] == high else None
                parts.append((name or f"{low} to {high}", rows))
    cells = (
        (
            name,
            str(sum(row["jobs"] for row in rows)),
            _percent(sum(row["jobs_share"] for row in rows)),
            f"{sum(row['gpu_s'] for row in rows) / 3600:.0f}",
            _percent(sum(row["gpu_s_share"] for row in rows)),
        )
        for name, rows in parts
    )
    print_table(
        console, "GPUs of a job", ("GPUs", "jobs", "of jobs", "GPU hours", "of GPU hours"), cells
    )


def _durations(report: Json, console: Console) -> None:
    durations = report["durations_s"]
    columns = {
        "duration in s": {q: _number(value) for q, value in durations.items()},
        "in h or d": {q: _span(value) for q, value in durations.items()},
    }
    if not any(columns["in h or d"].values()):
        del columns["in h or d"]
    if report["estimates"]:
        ratio = report["estimates"]["ratio"]
        columns["duration / estimate"] = {q: _number(value) for q, value in ratio.items()}
    if set(report["time_scale"].values()) != {1.0}:
        columns["time scale"] = {q: _number(value) for q, value in report["time_scale"].items()}
    rows = (
        (QUANTILES.get(q, q), *(column.get(q, "-") for column in columns.values()))
        for q in report["time_scale"]
    )
    print_table(console, "Durations", ("quantile", *columns), rows)


def _counts(console: Console, title: str, head: str, counts: Mapping[str, int]) -> None:
    whole = sum(counts.values())
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows: Iterable[tuple[str, int]] = ((name or "(none)", n) for name, n in largest[:ROWS])
    if rest := largest[ROWS:]:
        rows = [*rows, (f"{len(rest)} others", sum(n for _, n in rest))]
    cells = ((name, str(n), _percent(n / whole)) for name, n in rows)
    print_table(console, title, (head, "jobs", "share"), cells)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
