"""Section of a page on recorded and simulated waits of jobs."""

from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.texts.waits import (
    CLOSENESS_HEADS,
    HEADS,
    WAITS_NOTE,
    describe_record,
    is_far,
    rows_by_part,
    rows_by_scheduler,
)
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_labelled_table, tag
from wattkeeper.scenarios.report.phrases import variant_label

FIRST = 2
"""Sentences on the record that stand on the first screen; the others stand below."""


def record_notes(manifest: Manifest) -> list[Element]:
    """How far the baseline reproduces the record, as a note or a caution; beside the answer."""
    scenario, parts = manifest["scenario"], manifest.get("waits")
    baseline = scenario["baseline"]
    if not parts or baseline not in parts[0]["runs"]:
        return []
    class_ = "caution" if is_far(parts[0], baseline) else "note"
    lines = list(describe_record(parts, baseline, scenario))[:FIRST]
    return markup.notes([" ".join(lines)], class_)


def waits_section(manifest: Manifest, summary: Json) -> Element | None:
    """Recorded and simulated waits; None where the trace has no recorded starts."""
    scenario, parts = manifest["scenario"], manifest.get("waits")
    baseline = scenario["baseline"]
    if not parts or baseline not in parts[0]["runs"]:
        return None
    return tag(
        "section",
        tag("h2", "Waits of each scheduler, and the record"),
        build_labelled_table(CLOSENESS_HEADS, rows_by_scheduler(parts, scenario)),
        *markup.notes([WAITS_NOTE, *list(describe_record(parts, baseline, scenario))[FIRST:]]),
        tag("h2", "Recorded waits, and simulated ones of ", variant_label(baseline, summary)),
        build_labelled_table(HEADS, rows_by_part(parts, baseline)),
        id="waits",
    )
