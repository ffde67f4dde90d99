"""Which pipelines so many nodes run, and how they share micro-batches (Oobleck, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wattkeeper.policies.elastic.microbatches import PipelineGroup, share_microbatches
from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.errors import InputError

ROUNDING = 1e-9
"""Relative difference below which a bound may exceed a time by rounding alone."""


class Instantiation(NamedTuple):
    """The pipelines of a job.

    Attributes:
        groups: Pipelines by size, ascending.
        balanced_s: Largest product of the iteration time of a template over its number of stages,
            to which the time of a full pipeline is proportional, and the micro-batches of its
            pipelines, s; without the synchronisation of gradients.
        variance_s2: Variance over the sizes of these products, s squared.
    """

    groups: tuple[PipelineGroup, ...]
    balanced_s: float
    variance_s2: float


def instantiate(
    templates: Sequence[PipelineTemplate], nodes: int, microbatches: int
) -> Instantiation | None:
    """The pipelines of all nodes with the least `balanced_s`; None if no set of templates uses all.

    Of equal ones, those with the smaller variance, then with fewer small pipelines.

    Args:
        templates: One for each size.
        nodes: Of the job.
        microbatches: Of an iteration; each pipeline takes one or more.

    Raises:
        InputError: If two templates have the same size, or numbers are below 1.
    """
    by_size = _check(templates, nodes, microbatches)
    times_s = [_stage_s(template) for template in by_size]
    rates = _highest_rates([template.nodes for template in by_size], times_s, nodes)
    best: Instantiation | None = None
    best_key: tuple[float, float, tuple[int, ...]] | None = None

    def visit(index: int, left: int, counts: tuple[int, ...], rate: float) -> None:
        nonlocal best, best_key
        if index == len(by_size):
            found = instantiate_counts(by_size, counts, microbatches)
            if found is not None:
                key = (found.balanced_s, found.variance_s2, counts)
                if best_key is None or key < best_key:
                    best, best_key = found, key
            return
        size = by_size[index].nodes
        choices = [
            (rate + count / times_s[index] + rates[index + 1][left - count * size], count)
            for count in range(left // size + 1)
            if rates[index + 1][left - count * size] >= 0
        ]
        for highest, count in sorted(choices, reverse=True):
            # No pipelines share the micro-batches in less time than all finishing together.
            if best_key is not None and microbatches / highest > best_key[0] * (1 + ROUNDING):
                break
            now = rate + count / times_s[index]
            visit(index + 1, left - count * size, (*counts, count), now)

    if rates[0][nodes] > 0:
        visit(0, nodes, (), 0.0)
    return best


def instantiate_counts(
    templates: Sequence[PipelineTemplate], counts: Sequence[int], microbatches: int
) -> Instantiation | None:
    """Given numbers of pipelines with their micro-batches; None if these cannot be shared.

    Args:
        templates: One for each size.
        counts: Number of pipelines of each template.
        microbatches: Of an iteration.
    """
    used = [(template, count) for template, count in zip(templates, counts, strict=True) if count]
    times_s = [_stage_s(template) for template, _ in used]
    share = share_microbatches([count for _, count in used], times_s, microbatches)
    if share is None:
        return None
    groups = tuple(
        PipelineGroup(template.nodes, count, own)
        for (template, count), own in zip(used, share.microbatches, strict=True)
    )
    return Instantiation(
        groups,
        max(time_s * own for time_s, own in zip(times_s, share.microbatches, strict=True)),
        share.variance_s2,
    )


def _stage_s(template: PipelineTemplate) -> float:
    """Iteration time of a template over its number of stages, s."""
    return template.iteration_s / template.num_stages


def _highest_rates(sizes: Sequence[int], times_s: Sequence[float], nodes: int) -> list[list[float]]:
    """Most micro-batches per s of pipelines of the sizes from an index on; -1 if there are none.

    Returns:
        By index, one more than there are sizes, and number of nodes, all of which are used.
    """
    rates = [[0.0, *[-1.0] * nodes]]
    for size, time_s in zip(reversed(sizes), reversed(times_s), strict=True):
        row = list(rates[0])
        for used in range(size, nodes + 1):
            if row[used - size] >= 0:
                row[used] = max(row[used], row[used - size] + 1 / time_s)
        rates.insert(0, row)
    return rates


def _check(
    templates: Sequence[PipelineTemplate], nodes: int, microbatches: int
) -> list[PipelineTemplate]:
    """The templates by size, ascending.

    Raises:
        InputError: If two have the same size, one takes no time, or numbers are below 1.
    """
    by_size = sorted(templates, key=lambda template: template.nodes)
    sizes = [template.nodes for template in by_size]
    if not by_size or len(set(sizes)) < len(sizes):
        found = ", ".join(map(str, sizes)) or "none"
        raise InputError(f"templates for numbers of nodes: {found}; one for each size is allowed")
    for template in by_size:
        if template.nodes < 1 or not template.num_stages or not template.iteration_s > 0:
            raise InputError(
                f"the template for {template.nodes} nodes has {template.num_stages} stages and "
                f"takes {template.iteration_s} s; all must be above 0"
            )
    if nodes < 1 or microbatches < 1:
        raise InputError(
            f"{nodes} nodes and {microbatches} micro-batches; 1 or more of each are allowed"
        )
    return by_size
