"""Pipelines of elastic jobs, planned from costs of their layers."""

from __future__ import annotations

from pathlib import Path

from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.templates import most_nodes, plan_templates, template_sizes
from wattkeeper.scenarios.spec.sections.elastic import ElasticJobSection, PlannedPipelines
from wattkeeper.traces.layer_costs import LayerProfile, read_layers


def plan_job(
    job: ElasticJobSection, stated: PlannedPipelines, gpus_per_node: int, beside: Path
) -> tuple[PipelinePlan, LayerProfile]:
    """The templates of a job, and the costs that they are planned from.

    Args:
        job: The job.
        stated: Its pipelines.
        gpus_per_node: GPUs of each node.
        beside: The folder that the path of the file is relative to.

    Raises:
        InputError: If the file cannot be read or has no such profile, or the job has too few nodes
            or layers for these pipelines.
    """
    profile = read_layers(beside / stated.layers, stated.profile)
    most = most_nodes(len(profile.layers), gpus_per_node)
    sizes = template_sizes(stated.least_nodes, job.most_nodes, stated.losses, most)
    templates = plan_templates(profile.layers, gpus_per_node, sizes)
    microbatches = round(job.batch / stated.microbatch)
    return PipelinePlan(templates, microbatches, profile.layer_bytes), profile
