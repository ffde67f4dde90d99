"""Parts of sentences and tables: variants, changes and lists in words."""

from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import own_baselines
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.spec.wording import percent

Words = Element | str | None

WORDS = {
    "energy_j": ("energy", "less", "more"),
    "time_s": ("training time", "less", "more"),
    "cost": ("cost", "lower", "higher"),
    "cluster_energy_j": ("cluster energy", "less", "more"),
    "jct_s": ("job completion time", "shorter", "longer"),
    "queue_delay_s": ("queue delay", "shorter", "longer"),
    "gpu_s_saved": ("GPU time saved", "less", "more"),
    "goodput": ("goodput", "less", "more"),
    "useful_sample_j": ("energy of a committed sample", "less", "more"),
    "useful_sample_rent": ("rent of 1,000 samples", "less", "more"),
}
"""Metrics of the sentences: the noun, and the words for a ratio below and above 1."""

FUTURE = " (knows the future: a bound)"
"""Remark on a variant whose policy is an oracle."""


def variant_sentence(name: str, summary: Json, *words: Words) -> Element:
    """A sentence about a variant, as an item of a list."""
    index = list(summary["variants"]).index(name)
    return tag("li", variant_label(name, summary), *words, class_=f"b{index % 8}")


def variant_label(name: str, summary: Json) -> Element:
    """The name of a variant with its colour."""
    index = list(summary["variants"]).index(name)
    return tag("span", swatch(index), name, class_="variant", data_variant=index)


def name_baseline(name: str, summary: Json) -> Element | None:
    """Says that a variant is the baseline, or its own one where variants have several."""
    variants = summary["variants"]
    if variants[name]["versus"]["baseline"] == name:
        return tag("small", "baseline") if len(variants) > 1 else None
    baseline = own_baselines(variants).get(name)
    return tag("small", f"against {baseline}") if baseline else None


def swatch(index: int) -> Element:
    """A short line in the colour and dashes of a variant."""
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=f"line v{index % 8} d{index // 8 % 3}")
    return tag("svg", line, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")


def describe_change(metric: str, versus: Json) -> tuple[str, Element | None]:
    """A change in words, as `23.1 % less`, and its interval in the same direction."""
    _, below, above = WORDS[metric]
    ratio, interval = versus["ratio"], versus["ci95"]
    sign = -1 if ratio < 1 else 1
    text = f"{_unsigned(sign * (ratio - 1))} % {below if ratio < 1 else above}"
    if not interval or interval[0] == interval[1]:
        return text, None
    low, high = sorted(sign * (bound - 1) for bound in interval)
    return text, tag("small", f" [{_unsigned(low)}, {_unsigned(high)}]")


def signed_change(versus: Json) -> str:
    """A change as a number, as `−23.1 % [−30.0, −16.2]`."""
    text = f"{percent(versus['ratio'] - 1)} %"
    interval = versus["ci95"]
    if interval and interval[0] != interval[1]:
        text += f" [{', '.join(percent(bound - 1) for bound in interval)}]"
    return typeset_minus(text)


def _unsigned(share: float) -> str:
    return typeset_minus(percent(share).removeprefix("+"))


def typeset_minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen; a lone hyphen stands for no value."""
    return text if text == "-" else text.replace("-", "−")


def join_list(items: list[list[Words]]) -> list[Words]:
    """Items joined by commas and `and`."""
    joined: list[Words] = []
    for index, item in enumerate(items):
        joined += ([", " if index < len(items) - 1 else " and "] if index else []) + item
    return joined
