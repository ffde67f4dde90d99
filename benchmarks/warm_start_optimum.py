"""Whether a parent changes the best batch size and power limit of the recorded pairs, and the loss.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. The loss is what the
configuration that is best from scratch costs beyond the best one, with a share of the work left.
"""

from __future__ import annotations

from statistics import fmean

from wattkeeper.policies.profile import Objective, Profile, expectations
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles

GPU_TYPES = ("V100", "RTX6000", "A40", "P100")
SHARES = (0.9, 0.75, 0.55, 0.3)


def compare(profile: Profile, objective: Objective, work: float) -> tuple[bool, float]:
    """Whether another batch size is best, and the loss of the one that is best from scratch."""
    costs = [
        {
            (each.batch_size, each.power_limit_w): each.cost
            for each in expectations(profile, objective, share)
        }
        for share in (1.0, work)
    ]
    scratch, left = (min(by_choice, key=by_choice.__getitem__) for by_choice in costs)
    return left[0] != scratch[0], costs[1][scratch] / costs[1][left] - 1


def main() -> None:
    trace = store.find("zeus-nsdi23")
    profiles = [
        profile
        for gpu_type in GPU_TYPES
        for profile in load_profiles(trace, gpu_type).profiles.values()
    ]
    print("eta  share  other batch size  mean loss  largest loss")
    for eta in (0.5, 1.0):
        for share in SHARES:
            found = [compare(profile, Objective(eta), share) for profile in profiles]
            losses = [loss for _, loss in found]
            other = sum(changed for changed, _ in found)
            print(
                f"{eta:3}  {share:5}  {other:8} of {len(found):4}  {fmean(losses):9.1%}"
                f"  {max(losses):12.1%}"
            )


if __name__ == "__main__":
    main()
