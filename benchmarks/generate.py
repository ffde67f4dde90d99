"""What it costs to generate a million jobs, in CPU time and memory.

Samples the shipped fit, then a fit with everything that a fit may hold (made from a small sample
with users and groups), builds and checks the table, and names the parts.
"""

from __future__ import annotations

import resource
import time

from wattkeeper.traces.fits import Fit, Groups, Quantiles, Users, load_fit
from wattkeeper.traces.generate.fit import fit_trace
from wattkeeper.traces.generate.sample import sample

JOBS = 1_000_000


def rich(fit: Fit) -> Fit:
    """The fit of a sample that has users, groups and bursts."""
    some = Quantiles(levels=(0.0, 1.0), values=(1.0, 100.0))
    groups = Groups(share=0.6, size=some, distance_jobs=some, likeness=0.7)
    users = Users(shares=(0.3, 0.1), others=300, repeat_soon=0.5, repeat_later=0.1)
    return fit_trace(
        sample(fit.model_copy(update={"groups": groups, "users": users}), "rich", 20_000)
    )


def main() -> None:
    plain = load_fit("philly")
    for name, fit in (("shipped", plain), ("all parts", rich(plain))):
        began = time.process_time()
        table = sample(fit, "bench", JOBS).tables["jobs"]
        cpu_s = time.process_time() - began
        print(f"{name:12} {JOBS:,} jobs in {cpu_s:.2f} s CPU, table {table.nbytes / 1e6:.0f} MB")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory  {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
