"""Moments: why `Tune` is asked about an attempt that runs, and what that has done so far."""

from __future__ import annotations

from typing import Literal, NamedTuple

Moment = Literal["start", "profiled", "epoch", "signal", "straggler", "cap", "wake", "reached"]
"""Why `Tune` is asked.

`start`: the attempt is about to start. `profiled`: power limits, or a slice, were measured.
`epoch`: an epoch ended. `signal`: a signal of the policy has a new value. `straggler`: the pace
that others impose changed. `cap`: the share of the cluster's power cap changed. `wake`: the time
that it asked for. `reached`: the target was reached, and slices of other batch sizes may follow.
"""

START_MOMENTS: tuple[Moment, ...] = ("start", "profiled")
"""The moments at which every `Tune` policy is asked."""


class Progress(NamedTuple):
    """What an attempt has done so far.

    Attributes:
        epochs: Completed epochs; fractions count in simulated runs, whole epochs in live ones.
        work_s: Work done, as the time that it takes at the highest power limit, s.
        time_s: Time of training, without delays and pauses, s.
        energy_j: Energy of training, J.
    """

    epochs: float = 0.0
    work_s: float = 0.0
    time_s: float = 0.0
    energy_j: float = 0.0


NO_PROGRESS = Progress()
