"""Targets of the benchmarks of MLPerf Training.

From the rules, https://github.com/mlcommons/training_policies, and the checks of their logs,
https://github.com/mlcommons/logging. Of benchmarks with two metrics, the first.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Target(NamedTuple):
    """What ends a run.

    Attributes:
        metric: Name of the metric.
        value: To be reached.
        higher_is_better: Whether the metric rises as training proceeds.
    """

    metric: str
    value: float
    higher_is_better: bool


TARGETS: Final[Mapping[str, Target]] = {
    "bert": Target("masked-LM accuracy", 0.72, True),
    "dlrm_dcnv2": Target("AUC", 0.80275, True),
    "gnn": Target("classification accuracy", 0.72, True),
    "gpt3": Target("log perplexity", 2.69, False),
    "llama2_70b_lora": Target("evaluation loss", 0.925, False),
    "llama31_405b": Target("log perplexity", 5.6, False),
    "maskrcnn": Target("box mAP", 0.377, True),
    "resnet": Target("top-1 accuracy", 0.759, True),
    "rgat": Target("classification accuracy", 0.72, True),
    "rnnt": Target("word error rate", 0.058, False),
    "retinanet": Target("mAP", 0.34, True),
    "ssd": Target("mAP", 0.34, True),
    "stable_diffusion": Target("FID", 90.0, False),
    "unet3d": Target("mean DICE", 0.908, True),
}
