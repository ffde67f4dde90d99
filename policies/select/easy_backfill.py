"""First in, first out, with EASY backfilling."""

from collections.abc import Mapping
from typing import Literal

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.backfilling import EasyBackfill
from wattkeeper.policies.scheduling.estimates import Estimates, needed_columns


class EasyBackfillConfig(PolicyConfig):
    """First in, first out; later jobs may start earlier if that does not delay the head.

    EASY (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS
    12(6), 2001). If the head of the queue does not fit, it gets a reservation at the shadow time:
    when enough running jobs are expected to have ended. GPUs that are then free beyond its demand
    are extra. Every other job, in order of submission, starts if it fits now and is either expected
    to end by the shadow time or asks for no more than the extra GPUs. The reservation is computed
    anew at every scheduling pass. A job is expected to end its estimated run time after its start;
    a job that exceeds its estimate is expected to end now. (Real systems often kill it; here it
    continues, and the head may start after its first reservation.)

    Where GPUs are on nodes, the shadow time is when the head could be placed. Extra GPUs are only
    counted, fractions included, so that a long backfilled job may still occupy the head's place.
    """

    kind: Literal["easy-backfill"] = "easy-backfill"
    policy = EasyBackfill
    plain = "in order, later jobs may pass where they delay nobody"
    estimates: Estimates = "user"
    """Expected run time of a job: the user's estimate (`estimate_s`) or the exact one
    (`duration_s`). A job without it is refused."""

    def build(self) -> EasyBackfill:
        """Build the policy."""
        return EasyBackfill(self.estimates == "perfect")

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The column of the expected run time."""
        return needed_columns(self.estimates)
