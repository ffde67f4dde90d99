"""Parents among the architectures of torchvision, whose functions transfers keep or lose.

``python -m benchmarks.real_parents`` needs torchvision. It builds models of ten classes without
weights, transfers each pair of a family, and prints by family: pairs whose function the graphs say
can be kept, those of them that the transfer keeps, and others that it keeps; models that have a
relative from which the function is kept, and for how many of them each matcher puts such a relative
before all other models; and CPU seconds and the largest memory of the process so far.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
import torchvision
from torch import Tensor, nn

from wattkeeper.live import graph_of, transfer
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import MATCHERS
from wattkeeper.policies.matching.relation import relate, retained_share

FAMILIES: Final = {
    "resnet": ("resnet18", "resnet34"),
    "bottlenecks": ("resnet50", "resnet101", "wide_resnet50_2", "resnext50_32x4d"),
    "vgg": ("vgg11", "vgg13", "vgg16", "vgg11_bn", "vgg13_bn", "vgg16_bn"),
    "densenet": ("densenet121", "densenet169", "densenet201"),
    "mobilenet": ("mobilenet_v2", "mnasnet0_5", "mnasnet1_0"),
    "mobilenet 3": ("mobilenet_v3_small", "mobilenet_v3_large"),
    "efficientnet": ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2"),
    "regnet": ("regnet_x_400mf", "regnet_x_800mf", "regnet_y_400mf", "regnet_y_800mf"),
    "convnext": ("convnext_tiny", "convnext_small"),
    "shufflenet": ("shufflenet_v2_x0_5", "shufflenet_v2_x1_0"),
    "squeezenet": ("squeezenet1_0", "squeezenet1_1"),
    "vit": ("vit_b_16", "vit_l_16"),
    "swin": ("swin_t", "swin_s"),
    "others": ("googlenet", "alexnet"),
}
CLASSES: Final = 10
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "googlenet": {"aux_logits": False, "init_weights": False}
}


class Tally(NamedTuple):
    """Pairs of a family by what graphs say and transfers do."""

    said: int
    kept: int
    missed: int
    relatives: dict[str, list[str]]
    """By model, the relatives from which its function is kept."""


def build(name: str) -> nn.Module:
    torch.manual_seed(1)
    model: nn.Module = torchvision.models.get_model(
        name, weights=None, num_classes=CLASSES, **SETTINGS.get(name, {})
    )
    for part in model.modules():  # statistics as after training, so that no norm is the identity
        if isinstance(part, nn.BatchNorm2d):
            part.get_buffer("running_mean").normal_(0, 0.1)
            part.get_buffer("running_var").uniform_(0.5, 1.5)
    return model


def images(name: str) -> Tensor:
    side = 224 if name.startswith(("vit", "swin")) else 64
    return torch.randn(1, 3, side, side)


def compare(names: tuple[str, ...], graphs: dict[str, Graph]) -> Tally:
    said = kept = missed = 0
    relatives: dict[str, list[str]] = {name: [] for name in names}
    for child in names:
        for parent in names:
            if parent == child:
                continue
            is_kept = transfer(build(parent), build(child), images(child)).kept == "all"
            is_said = relate(graphs[parent], graphs[child]).keeps
            said += is_said
            kept += is_said and is_kept
            missed += is_kept and not is_said
            if is_kept:
                relatives[child].append(parent)
    return Tally(said, kept, missed, relatives)


def count_first(matcher: str, relatives: dict[str, list[str]], graphs: dict[str, Graph]) -> int:
    """For how many models a matcher puts a relative that is kept before all others."""
    score: Callable[[Graph, Graph], float] = MATCHERS[matcher].score_graphs

    def best(child: str) -> str:
        return max(
            (name for name in graphs if name != child),
            key=lambda name: (
                score(graphs[name], graphs[child]),
                retained_share(graphs[name], graphs[child]),
            ),
        )

    return sum(best(child) in kept for child, kept in relatives.items() if kept)


def main() -> None:
    torch.set_num_threads(1)
    names = [name for family in FAMILIES.values() for name in family]
    graphs = {name: graph_of(build(name), (images(name),), name) for name in names}
    heads = ("family", "models", "said", "kept", "missed", "with relative", *MATCHERS)
    print("  ".join((*heads, "CPU s", "MB")))
    for family, members in FAMILIES.items():
        began_s = time.process_time()
        tally = compare(members, graphs)
        first = [count_first(matcher, tally.relatives, graphs) for matcher in MATCHERS]
        able = sum(map(bool, tally.relatives.values()))
        seconds = time.process_time() - began_s
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        cells = (family, len(members), *tally[:3], able, *first, f"{seconds:.0f}", memory)
        print("  ".join(map(str, cells)), flush=True)


if __name__ == "__main__":
    main()
