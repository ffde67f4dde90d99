"""The answer of a study in words, and the tables that it rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.searches import SAVED, SAVED_NOTE
from wattkeeper.scenarios.shown import SHARES, knows_energy, shown_metrics, value_text
from wattkeeper.scenarios.words import percent

Words = Element | str | None

WORDS = {
    "energy_j": ("energy", "less", "more"),
    "time_s": ("training time", "less", "more"),
    "cost": ("cost", "lower", "higher"),
    "cluster_energy_j": ("cluster energy", "less", "more"),
    "jct_s": ("job completion time", "shorter", "longer"),
    "queue_delay_s": ("queue delay", "shorter", "longer"),
    "gpu_s_saved": ("GPU time saved", "less", "more"),
}
"""What the sentences speak of: a metric, and what it is if its ratio is below and above 1."""

SAVED_WORDS = dict(
    zip(SAVED, ("work", "epochs", "CPU time of training", "CPU time with overhead"), strict=True)
)

PARTS = {"workload": "workload", "gpu_type": "GPU type"}
"""By what differences are shown."""

SENTENCES = 5
"""Variants that sentences are made of; the table has all."""

VERDICTS = {
    "lower": "the 95 % interval of the change lies below 0 %",
    "higher": "the 95 % interval of the change lies above 0 %",
    "noise": "the 95 % interval includes 0 %, so luck may explain the difference",
    "identical": "equal with every seed",
    "one seed": "no interval can be given",
}
"""What statistics say of a difference."""

FUTURE = " (knows the future: a bound)"
"""What is said of a variant whose policy is an oracle."""

MOST_PARTS = 400
"""Rows of the table by workload."""


def sentences(summary: Json, bounds: Collection[str] = ()) -> Iterator[Element]:
    """What each variant changes against its baseline, in words.

    Args:
        summary: Of the study.
        bounds: Variants whose policy knows the future.
    """
    if "saved" in summary:
        yield from _saved_sentences(summary)
        return
    compared = [metric for metric in shown_metrics(summary) if metric in WORDS]
    others = {name: one for name, one in summary["variants"].items()
              if one["versus"]["baseline"] != name}  # fmt: skip
    if not others:
        for name, one in summary["variants"].items():
            known: list[list[Words]] = [
                [f"{WORDS[metric][0]} ", tag("strong", value_text(mean, metric))]
                for metric in compared
                if (mean := one["metrics"][metric]["mean"]) is not None
            ]
            said = listed(known) or ["no figure is known"]
            yield tag("li", variant(name, summary), ": ", *said, ".")
        return
    if len(others) <= SENTENCES:
        for name, one in others.items():
            yield _sentence(name, one, compared, summary, name in bounds)
        return
    first = compared[0]
    means = {name: one["metrics"][first]["mean"] for name, one in others.items()}
    order = sorted(others, key=lambda name: (means[name] is None, means[name] or 0.0))
    yield tag("li", f"The {SENTENCES} of {len(others)} variants with the least {WORDS[first][0]}; "
              "all are in the table.")  # fmt: skip
    for name in order[:SENTENCES]:
        yield _sentence(name, others[name], compared, summary, name in bounds)


def _sentence(name: str, one: Json, compared: list[str], summary: Json, bound: bool) -> Element:
    versus = one["versus"]
    if _same_change(versus, "time_s", "jct_s"):  # nobody waits
        compared = [metric for metric in compared if metric != "jct_s"]
    baseline = variant(versus["baseline"], summary)
    clear: list[list[Words]] = []
    unclear: list[list[Words]] = []
    same: list[list[Words]] = []
    for metric in compared:
        found = versus.get(metric) or {}
        if found.get("ratio") is None:
            continue
        verdict, noun = found.get("verdict"), WORDS[metric][0]
        if verdict == "identical" or (
            verdict in (None, "one seed") and percent(found["ratio"] - 1) == "+0.0"
        ):
            same.append([noun])
        elif verdict == "noise":
            unclear.append([noun, " (", *change(metric, found), ")"])
        else:
            changed, interval = change(metric, found)
            clear.append([tag("strong", changed), f" {noun}", interval])
    clauses: list[list[Words]] = []
    if clear:
        clauses.append([*listed(clear), " than ", baseline])
    if same:
        as_baseline: list[Words] = [] if clear else [" as ", baseline]
        clauses.append(["the same ", *listed(same), *as_baseline])
    if unclear:
        clauses.append(["no difference beyond noise in ", *listed(unclear)])
    saved = one["metrics"].get("gpu_s_saved", {}).get("mean")
    if saved and versus.get("gpu_s_saved", {}).get("ratio") is None:
        warm = f"{value_text(saved, 'gpu_s_saved')} of GPU time saved by warm starts"
        clauses.append([warm])
    clauses += _after_learning(one, clear)
    if not clauses:
        clauses = [["nothing can be compared with ", baseline]]
    joined = [word for clause in clauses for word in (*clause, "; ")][:-1]
    return line(name, summary, FUTURE if bound else None, ": ", *joined, ".")


def _same_change(versus: Json, one: str, other: str) -> bool:
    """Whether two metrics change alike, as far as it is shown."""
    found = [versus.get(metric) or {} for metric in (one, other)]
    return all(of.get("ratio") is not None for of in found) and (
        _change(found[0]) == _change(found[1])
    )


def _after_learning(one: Json, clear: list[list[Words]]) -> Iterator[list[Words]]:
    """The energy of a job after learning, where its change is another one than that of all."""
    whole, last = (one["versus"].get(key) or {} for key in ("energy_j", "last5_energy_j"))
    if not clear or last.get("ratio") is None or whole.get("ratio") is None:
        return
    text, interval = change("energy_j", last)
    if text != change("energy_j", whole)[0] and last.get("verdict") in ("lower", "higher"):
        yield [f"after learning (the last 5 recurrences), {text} energy a job", interval]


def line(name: str, summary: Json, *said: Words) -> Element:
    """A sentence about a variant."""
    at = list(summary["variants"]).index(name)
    return tag("li", variant(name, summary), *said, class_=f"b{at % 8}")


def change(metric: str, versus: Json) -> tuple[str, Element | None]:
    """A change in words, as `23.1 % less`, and its interval in the same direction."""
    _, below, above = WORDS[metric]
    ratio, interval = versus["ratio"], versus["ci95"]
    sign = -1 if ratio < 1 else 1
    text = f"{_plain(sign * (ratio - 1))} % {below if ratio < 1 else above}"
    if not interval or interval[0] == interval[1]:
        return text, None
    low, high = sorted(sign * (bound - 1) for bound in interval)
    return text, tag("small", f" [{_plain(low)}, {_plain(high)}]")


def _plain(share: float) -> str:
    return _minus(percent(share).removeprefix("+"))


def _minus(text: str) -> str:
    """Numbers as they are printed; a lone hyphen is no number."""
    return text if text == "-" else text.replace("-", "−")


def listed(items: list[list[Words]]) -> list[Words]:
    """Items as they are listed in a sentence."""
    listed: list[Words] = []
    for at, item in enumerate(items):
        listed += ([", " if at < len(items) - 1 else " and "] if at else []) + item
    return listed


def variant(name: str, summary: Json) -> Element:
    """A variant with its colour."""
    at = list(summary["variants"]).index(name)
    return tag("span", swatch(at), name, class_="variant", data_variant=at)


def swatch(at: int) -> Element:
    """A short line in the colour and dashes of a variant."""
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=f"line v{at % 8} d{at // 8 % 3}")
    return tag("svg", line, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")


def remarks(study_seeds: int, summary: Json) -> Iterator[str]:
    """How sure the figures are."""
    if "saved" in summary or len(summary["variants"]) == 1:
        return
    if study_seeds == 1:
        yield (
            "One seed: there are no intervals, and luck may explain a difference where anything is "
            "drawn at random."
        )
    else:
        yield f"Means of {study_seeds} seeds, compared seed by seed [95 % interval]."


def verdicts(summary: Json) -> Iterator[str]:
    """What the badges mean that are shown."""
    found = {
        of["verdict"]
        for one in summary["variants"].values()
        for of in one["versus"].values()
        if isinstance(of, Mapping) and of.get("verdict")
    }
    said = [f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in found]
    if said:
        yield f"Marks: {'; '.join(said)}."


def comparison(summary: Json) -> Element:
    """The variants and what each metric is, against the baseline."""
    if "saved" in summary:
        return _saved_table(summary)
    shown = shown_metrics(summary)
    heads = dict(shown)
    if "cost" in shown:
        heads["regret"] = "regret"
    spans = {metric: _span(metric, summary) for metric in shown}
    rows = []
    for name, one in summary["variants"].items():
        cells = [tag("th", variant(name, summary), _against(name, one, summary), scope="row")]
        cells += [_cell(name, one, metric, heads[metric], spans.get(metric)) for metric in heads]
        rows.append(tag("tr", *cells))
    titles = [tag("th", title, scope="col") for title in ("variant", *heads.values())]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows), class_="cards")


def _against(name: str, one: Json, summary: Json) -> Element | None:
    """Which one it is compared with, where variants have several baselines."""
    baseline = one["versus"]["baseline"]
    if baseline == name:
        return tag("small", "baseline") if len(summary["variants"]) > 1 else None
    several = len({of["versus"]["baseline"] for of in summary["variants"].values()}) > 1
    return tag("small", f"against {baseline}") if several else None


def _cell(name: str, one: Json, metric: str, title: str, span: float | None) -> Element:
    cell = value_cell(name, one, metric, title, compared=bool(span))
    versus = compared_with(name, one, metric)
    if versus and span:
        cell.append(_whisker(versus, span))
    return cell


def value_cell(name: str, one: Json, metric: str, title: str, compared: bool = True) -> Element:
    """A value, its change against the baseline, and what statistics say of that."""
    known = one["metrics"].get(metric, {}).get("mean")
    inside: list[Element | None] = [tag("b", _minus(value_text(known, metric)))]
    versus = compared_with(name, one, metric)
    if compared and versus:
        inside += [tag("span", _change(versus), class_="change"), badge(versus)]
    return tag("td", *inside, data_label=title)


def compared_with(name: str, one: Json, metric: str) -> Json | None:
    """The comparison with the baseline, where there is one."""
    versus: Json | None = one["versus"].get(metric) if metric not in SHARES else None
    known = versus and versus["ratio"] is not None and one["versus"]["baseline"] != name
    return versus if known else None


def _change(versus: Json) -> str:
    text = f"{percent(versus['ratio'] - 1)} %"
    interval = versus["ci95"]
    if interval and interval[0] != interval[1]:
        text += f" [{', '.join(percent(bound - 1) for bound in interval)}]"
    return _minus(text)


def badge(versus: Json) -> Element | None:
    """What statistics say of a difference; where its size is known, it says that too."""
    verdict, effect = versus.get("verdict"), versus.get("effect")
    if verdict is None:
        return None
    made = tag("span", verdict, class_=f"badge {verdict.replace(' ', '-')}")
    if effect is not None:
        made.set("title", f"effect size {effect:.2f}: mean of the differences over their deviation")
    return made


def _span(metric: str, summary: Json) -> float:
    """The largest change of any variant, its interval included."""
    most = 0.0
    for one in summary["variants"].values():
        versus = one["versus"].get(metric) or {}
        if versus.get("ratio") is not None:
            bounds = versus["ci95"] or [versus["ratio"]]
            most = max(most, *(abs(bound - 1) for bound in (*bounds, versus["ratio"])))
    return most


def _whisker(versus: Json, span: float) -> Element:
    """The change and its interval as a picture; the middle line is the baseline."""

    def at(ratio: float) -> float:
        return round(60 + 54 * (ratio - 1) / span, 2)

    low, high = versus["ci95"] or (versus["ratio"], versus["ratio"])
    return tag(
        "svg",
        tag("line", x1=60, y1=0, x2=60, y2=14, class_="zero"),
        tag("line", x1=at(low), y1=7, x2=at(high), y2=7, class_="range"),
        tag("circle", cx=at(versus["ratio"]), cy=7, r=4, class_="dot"),
        viewBox="0 0 120 14", class_="whisker", aria_hidden="true",
    )  # fmt: skip


def parts(summary: Json) -> tuple[str, Element] | None:
    """By what results are broken down, and the table of differences; None if it has one part."""
    if "saved" in summary:
        return None
    key = next((key for key in PARTS if len(summary["by"][key]) > 1), None)
    if key is None:
        return None
    title, found = PARTS[key], summary["by"][key]
    shown = {metric: name for metric, name in shown_metrics(summary).items() if metric in WORDS}
    for whole in ("cluster_energy_j", "gpu_s_saved"):
        shown.pop(whole, None)
    if summary["by"]["workload"]:
        last = "last5_energy_j" if knows_energy(summary) else "last5_time_s"
        shown[last] = f"{'energy' if last == 'last5_energy_j' else 'time'} after learning"
    rows = []
    for part, variants in found.items():
        others = {name: one for name, one in variants.items() if one["versus"]["baseline"] != name}
        for at, (name, one) in enumerate(others.items()):
            head = [tag("th", part, rowspan=len(others), scope="rowgroup")] if not at else []
            cells = [_part_cell(one, metric, label) for metric, label in shown.items()]
            rows.append(tag("tr", *head, tag("th", variant(name, summary), scope="row"), *cells))
    if not rows:
        return None
    titles = [tag("th", text, scope="col") for text in (title, "variant", *shown.values())]
    table = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows[:MOST_PARTS]))
    if len(rows) > MOST_PARTS:
        table.append(tag("caption", f"The first {MOST_PARTS} of {len(rows)} rows."))
    return title, tag("div", table, class_="scroll")


def _part_cell(one: Json, metric: str, label: str) -> Element:
    versus = one["versus"].get(metric) or {}
    if versus.get("ratio") is None:
        return tag("td", "-", data_label=label)
    changed, _, interval = _change(versus).partition(" [")
    inside = [tag("b", changed)]
    if interval:
        inside.append(tag("span", f"[{interval}", class_="change"))
    return tag("td", *inside, badge(versus), data_label=label)


def _saved_sentences(summary: Json) -> Iterator[Element]:
    """Of a search that trained for real."""
    for name, saved in summary["saved"].items():
        words: list[list[Words]] = []
        for key, noun in SAVED_WORDS.items():
            ratios = {"ratio": 1 - saved[key]["mean"], "ci95": None}
            if saved[key]["ci95"]:
                ratios["ci95"] = [1 - bound for bound in reversed(saved[key]["ci95"])]
            changed, interval = change("energy_j", ratios)
            words.append([tag("strong", changed), f" {noun}", interval])
        points = saved["accuracy_points"]
        accuracy = f"; final accuracy {_points(points['mean'])} points"
        bounds = points["ci95"]
        interval = tag("small", f" [{', '.join(map(_points, bounds))}]") if bounds else None
        yield tag("li", variant(name, summary), ": ", *listed(words), accuracy, interval, ".")


def _points(value: float) -> str:
    return _minus(f"{value:+.2f}")


def _saved_table(summary: Json) -> Element:
    heads = {**SAVED_WORDS, "accuracy_points": "final accuracy"}
    rows = []
    for name, saved in summary["saved"].items():
        cells = [tag("th", variant(name, summary), scope="row")]
        for key, title in heads.items():
            factor, unit = (1, " points") if key == "accuracy_points" else (100, " % saved")
            digits = 2 if factor == 1 else 1
            value = _minus(f"{factor * saved[key]['mean']:+.{digits}f}{unit}")
            interval = saved[key]["ci95"]
            shown = "" if not interval else "[{}]".format(
                ", ".join(f"{factor * bound:+.{digits}f}" for bound in interval))  # fmt: skip
            cells.append(tag("td", tag("b", value),
                             tag("span", _minus(shown), class_="change"),
                             data_label=title))  # fmt: skip
        rows.append(tag("tr", *cells))
    titles = [tag("th", title, scope="col") for title in ("variant", *heads.values())]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows),
               tag("caption", SAVED_NOTE), class_="cards")  # fmt: skip
