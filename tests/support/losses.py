"""A scenario with losses of nodes, and the jobs that it replays."""

from tests.conftest import Command

SCENARIO = """
name: losses
question: What do losses cost?
cluster:
  gpu: V100
  gpus: 16
  gpus_per_node: 2
  idle_power_w: 40
  busy_power_w: 250
  losses:
    events: EVENTS
    checkpoint: {every_s: 600, write_s: 20, read_s: 10}
workload: {kind: trace, trace: jobs}
variants:
  none: {cluster: {losses: null}}
  anew: {cluster: {losses: {checkpoint: null}}}
  saved: {}
baseline: none
"""
"""`EVENTS` stands for the events of nodes."""


def generate_jobs(command: Command, load: float, jobs: int = 300) -> None:
    """Generate the trace `jobs` at a load of the scenario's cluster."""
    command(
        "traces",
        "generate",
        "jobs",
        "--name",
        "jobs",
        "--jobs",
        str(jobs),
        "--load",
        str(load),
        "--gpus",
        "16",
    )
