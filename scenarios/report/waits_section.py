"""Section of a page on recorded and simulated waits of jobs."""

from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.waits_text import HEADS, describe_record, rows_by_part
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import variant_label


def waits_section(manifest: Manifest, summary: Json) -> Element | None:
    """How far the baseline reproduces the record; None where the trace has no recorded starts."""
    scenario, parts = manifest["scenario"], manifest.get("waits")
    baseline = scenario["baseline"]
    if not parts or baseline not in parts[0]["runs"]:
        return None
    rows = []
    for label, *values in rows_by_part(parts, baseline):
        cells = zip(HEADS[1:], values, strict=True)
        rows.append(tag("tr", tag("th", label, scope="row"),
                        *(tag("td", value, data_label=head) for head, value in cells)))  # fmt: skip
    return tag(
        "section",
        tag("h2", "Recorded waits, and simulated ones of ", variant_label(baseline, summary)),
        *markup.notes(describe_record(parts, baseline, scenario)),
        build_table(HEADS, rows, class_="cards"),
        id="waits",
    )
