"""First fit: `first-fit`."""

from wattkeeper.policies.place._sharing import (
    assign_slots,
    count_fitting,
    count_fitting_shared,
    fill,
    of_type,
)
from wattkeeper.policies.protocols import WHOLE, ClusterView, Context, Job, Place, Placement


class FirstFit(Place):
    """See `wattkeeper.policies.place.first_fit.FirstFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """First fit."""
        gpus = job.gpus
        if job.gpu_milli < WHOLE:
            fitting = count_fitting_shared(job, cluster)
            node = int((fitting >= gpus).argmax())
            if fitting[node] >= gpus:
                return assign_slots(job, cluster, [(node, gpus)])
        fitting = count_fitting(job, cluster)
        node = int((fitting >= gpus).argmax())
        if fitting[node] >= gpus:
            return assign_slots(job, cluster, [(node, gpus)])
        for gpu_type in cluster.types_for(job):
            of_one_type = of_type(fitting, cluster, gpu_type)
            parts = fill(of_one_type.nonzero()[0].tolist(), of_one_type, gpus)
            if parts:
                return assign_slots(job, cluster, parts)
        return ()
