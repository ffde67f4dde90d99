"""Who used what: energy, money and emissions by user, account or queue."""

from collections.abc import Iterator
from typing import Final

from wattkeeper.scenarios.analysis.consumption import currency, format_amount
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.usage import UsageRow, usage_rows
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import Block, Chapter, Fold, Table
from wattkeeper.scenarios.document.words import name_of
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY

USAGE_NOTE: Final = (
    "Own: energy of the GPUs that their jobs held. Share of idle: while they held GPUs, they bear "
    "what free GPUs draw, by the number of GPUs held at that time; while nobody holds any, it is "
    "nobody's. The rows add up to the energy of the cluster. usage.parquet has all of them."
)


def usage_section(study: Study) -> Chapter | None:
    """Use by user, account or queue under each variant; None where jobs name none."""
    manifest, variants = study.manifest, study.summary["variants"]
    baseline = manifest["scenario"]["baseline"]
    tables = {
        name: table
        for name in variants
        if base_of(name) not in variants and (table := _usage_table(study, name)) is not None
    }
    if baseline not in tables:
        return None
    content: list[Block] = [tables.pop(baseline), *blocks.notes([USAGE_NOTE])]
    if tables:
        others = [table._replace(title=name) for name, table in tables.items()]
        content.append(Fold("Under the other variants", others))
    title = ("Who used what under ", name_of(baseline, list(variants)))
    return Chapter("usage", title, content, "page")


def _usage_table(study: Study, variant: str) -> Table | None:
    rows = usage_rows(study, variant)
    if not rows:
        return None
    money = currency(study.manifest)
    heads = [study.manifest["usage"], "jobs", "GPU hours", "own", "share of idle", "energy"]
    heads += ["electricity"] * (rows[0].cost is not None)
    heads += ["emissions"] * (rows[0].carbon_g is not None)
    return blocks.text_table(heads, (list(_format_row(row, money)) for row in rows))


def _format_row(row: UsageRow, money: str | None) -> Iterator[str]:
    yield from (row.name, f"{row.jobs:,.0f}", f"{row.gpu_h:,.0f}")
    yield from (format_amount(each, ENERGY) for each in (row.own_j, row.idle_j, row.energy_j))
    if row.cost is not None:
        yield format_amount(row.cost, COST, money)
    if row.carbon_g is not None:
        yield format_amount(row.carbon_g, CARBON)
