"""Floor 4, real GPUs: sessions in training scripts, torch modules as graphs, and the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattkeeper.live.elastic.replica import ModuleReplica
    from wattkeeper.live.elastic.training import train_elastic
    from wattkeeper.live.pipeline.session import PipelineSession
    from wattkeeper.live.session.session import Session
    from wattkeeper.live.weight_transfer.model_graph import graph_of
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.live.weight_transfer.transfer import transfer
    from wattkeeper.live.zoo.zoo import Zoo

__all__ = [
    "ModuleReplica",
    "PipelineSession",
    "Session",
    "TransferReport",
    "Zoo",
    "graph_of",
    "train_elastic",
    "transfer",
]

_HOMES = {
    "ModuleReplica": "elastic.replica",
    "PipelineSession": "pipeline.session",
    "Session": "session.session",
    "TransferReport": "weight_transfer.report",
    "Zoo": "zoo.zoo",
    "graph_of": "weight_transfer.model_graph",
    "train_elastic": "elastic.training",
    "transfer": "weight_transfer.transfer",
}


def __getattr__(name: str) -> Any:  # torch is loaded where it is used, not by importing the floor
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
