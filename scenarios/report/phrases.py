"""Parts of sentences and tables: variants, changes and lists in words."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
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
}
"""What the sentences speak of: a metric, and what it is if its ratio is below and above 1."""

FUTURE = " (knows the future: a bound)"
"""What is said of a variant whose policy is an oracle."""


def line(name: str, summary: Json, *said: Words) -> Element:
    """A sentence about a variant."""
    at = list(summary["variants"]).index(name)
    return tag("li", variant(name, summary), *said, class_=f"b{at % 8}")


def variant(name: str, summary: Json) -> Element:
    """A variant with its colour."""
    at = list(summary["variants"]).index(name)
    return tag("span", swatch(at), name, class_="variant", data_variant=at)


def swatch(at: int) -> Element:
    """A short line in the colour and dashes of a variant."""
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=f"line v{at % 8} d{at // 8 % 3}")
    return tag("svg", line, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")


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


def signed(versus: Json) -> str:
    """A change as a number, as `−23.1 % [−30.0, −16.2]`."""
    text = f"{percent(versus['ratio'] - 1)} %"
    interval = versus["ci95"]
    if interval and interval[0] != interval[1]:
        text += f" [{', '.join(percent(bound - 1) for bound in interval)}]"
    return minus(text)


def _plain(share: float) -> str:
    return minus(percent(share).removeprefix("+"))


def minus(text: str) -> str:
    """Numbers as they are printed; a lone hyphen is no number."""
    return text if text == "-" else text.replace("-", "−")


def listed(items: list[list[Words]]) -> list[Words]:
    """Items as they are listed in a sentence."""
    listed: list[Words] = []
    for at, item in enumerate(items):
        listed += ([", " if at < len(items) - 1 else " and "] if at else []) + item
    return listed
