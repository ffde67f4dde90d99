"""The charts of a study, in the order of its page."""

from collections.abc import Iterator

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import has_zoo, only_elastic
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.charts.columns import read_outcomes
from wattkeeper.scenarios.charts.distributions import draw_distributions
from wattkeeper.scenarios.charts.elastic_nodes import draw_elastic_nodes
from wattkeeper.scenarios.charts.learning import draw_choices, draw_regret
from wattkeeper.scenarios.charts.node_losses import draw_nodes
from wattkeeper.scenarios.charts.over_time import draw_over_time, draw_zoo
from wattkeeper.scenarios.charts.pareto import draw_tradeoff
from wattkeeper.scenarios.charts.recorded_load import draw_recorded_load


def draw_study(study: Study) -> Iterator[Chart]:
    """All charts for which the study has data."""
    variants = list(study.summary["variants"])
    yield from draw_tradeoff(study, variants)
    outcomes = read_outcomes(study)
    attempts = [run for run, _ in outcomes]
    recurs = any((jobs.recurrence > 1).any() for _, jobs in outcomes)
    if recurs:
        yield from draw_regret(outcomes, variants)
    else:
        attempts.clear()
    if not only_elastic(study.manifest["scenario"]):
        yield from draw_distributions(outcomes, variants)
    outcomes.clear()  # large for a million jobs, and so are the next charts' columns
    yield from draw_recorded_load(study, variants)
    yield from draw_over_time(study, variants)
    yield from draw_elastic_nodes(study, variants)
    yield from draw_nodes(study, variants)
    if recurs:
        yield from draw_choices(attempts, variants)
    if has_zoo(study.summary):
        yield from draw_zoo(study, variants)
