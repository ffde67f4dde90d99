"""What the zoo of a real search for architectures saves, in sentences."""

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels
from wattkeeper.scenarios.document.blocks import Paragraph, Small, Span, Strong, Text
from wattkeeper.scenarios.document.words import join_list, name_of
from wattkeeper.scenarios.spec.wording import percent


def describe_savings(summary: Json) -> Iterator[Paragraph]:
    """A sentence for each variant, the one that saves most work first."""
    ordered = sorted(summary["saved"].items(), key=lambda item: -item[1]["work"]["mean"])
    for index, (name, saved) in enumerate(ordered):
        clear: list[Text] = []
        unclear: list[Text] = []
        for key, noun in savings_labels(summary).items():
            mean, interval = saved[key]["mean"], saved[key]["ci95"]
            text = f"{percent(abs(mean)).removeprefix('+')} %"
            bounds = f" [{', '.join(map(percent, interval))}]" if interval else ""
            if is_noise(saved[key]):
                unclear.append([f"{noun} ({text}", Small(bounds), ")"])
            else:
                more = " more" * (mean < 0)
                clear.append([Strong(f"{text}{more}"), f" of {noun}", Small(bounds)])
        words: list[Span] = [name_of(name, list(summary["variants"]))]
        words += [" saves ", *join_list(clear)] if clear else []
        if unclear:
            seeds = saved["work"]["n"]
            words += ["; " if clear else ": ", f"open with {seeds} seeds: ", *join_list(unclear)]
        accuracy = saved["accuracy_points"]
        interval = ", ".join(f"{bound:+.2f}" for bound in accuracy["ci95"] or ())
        bounds = f" [{interval}]" * bool(interval)
        words += [f"; final accuracy {accuracy['mean']:+.2f} points", Small(bounds), "."]
        yield Paragraph("answer" if index else "lead", words)
