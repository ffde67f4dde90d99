"""First fit: `first-fit`."""

from wattkeeper.policies.place._sharing import (
    assign_slots,
    count_fitting,
    count_fitting_shared,
    fill,
    of_type,
)
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context


class FirstFit(Place):
    """See `wattkeeper.policies.place.first_fit.FirstFitConfig`."""

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """First fit."""
        gpus = job.gpus
        if job.gpu_milli == WHOLE:
            first = first_node(job, cluster)
            if first is not None:
                return ((first, gpus, NEW),)
            if gpus == 1:
                return ()
            fitting = count_fitting(job, cluster)
        else:
            for count in (count_fitting_shared, count_fitting):
                fitting = count(job, cluster)
                node = int((fitting >= gpus).argmax())
                if fitting[node] >= gpus:
                    return assign_slots(job, cluster, [(node, gpus)])
        for gpu_type in cluster.types_for(job):
            of_one_type = of_type(fitting, cluster, gpu_type)
            parts = fill(of_one_type.nonzero()[0].tolist(), of_one_type, gpus)
            if parts:
                return assign_slots(job, cluster, parts)
        return ()


def first_node(job: Job, cluster: ClusterView) -> int | None:
    """The first node that holds a job of whole GPUs; None if there is none."""
    first: int | None = None
    for gpu_type in cluster.types_for(job):
        node = cluster.first_node(job.gpus, gpu_type)
        if node is not None and (first is None or node < first):
            first = node
    return first
