"""Real architectures of torchvision, timm and transformers, small and without trained weights."""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from tests.support.architectures import FAMILIES

IMAGES: Final = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
WORDS: Final = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(3))

LIBRARIES: Final = {"tv": "torchvision", "timm": "timm", "hf": "transformers"}

SMALL_WORDS: Final[dict[str, Any]] = {
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "num_labels": 3,
    "use_cache": False,
}
"""Of transformers' configurations; each class takes those that it has under these names."""


class Model(NamedTuple):
    """How a model is built: a library, a name in it, and arguments."""

    library: str
    name: str
    settings: dict[str, Any]

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return _randomise(_BUILDERS[self.library](self.name, dict(self.settings)))

    @property
    def inputs(self) -> Tensor:
        if self.library == "torch":
            return WORDS % 50 if FAMILIES[self.name].is_text else IMAGES[:, :, :16, :16]
        return WORDS if self.library == "hf" and self.name not in _OF_IMAGES else IMAGES


_OF_IMAGES: Final = ("ViTModel", "ViTForImageClassification")


class _Sequences(nn.Module):
    """An encoder and decoder that read the same words."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        found: tuple[Tensor, ...] = self.model(input_ids=x, decoder_input_ids=x)
        return found[0]


def _build_transformers(name: str, settings: dict[str, Any]) -> nn.Module:
    transformers = importlib.import_module("transformers")
    kind = getattr(transformers, name)
    config = kind.config_class(**{**SMALL_WORDS, "attn_implementation": "eager", **settings})
    model: nn.Module = kind(config)
    return _Sequences(model) if config.is_encoder_decoder else model


def _build_timm(name: str, settings: dict[str, Any]) -> nn.Module:
    """A registered model, or one of a class in a module: `vgg.VGG`."""
    given = {"num_classes": 10, **settings}
    module, _, kind = name.rpartition(".")
    if module:
        model = getattr(importlib.import_module(f"timm.models.{module}"), kind)(**given)
    else:
        model = importlib.import_module("timm").create_model(name, pretrained=False, **given)
    built: nn.Module = model
    return built


def _build_torchvision(name: str, settings: dict[str, Any]) -> nn.Module:
    models = importlib.import_module("torchvision.models")
    given = {"num_classes": 10, **settings}
    if name == "SwinTransformer":
        sides = {"patch_size": [4, 4], "window_size": [4, 4]}
        model = models.swin_transformer.SwinTransformer(**{**sides, **given})
    elif name == "ConvNeXt":
        setting = models.convnext.CNBlockConfig
        ends = [*given.pop("dims"), None]
        blocks = [
            setting(*pair, depth)
            for *pair, depth in zip(ends, ends[1:], given.pop("depths"), strict=False)
        ]
        model = models.convnext.ConvNeXt(blocks, **given)
    elif hasattr(models, name) and isinstance(getattr(models, name), type):
        model = getattr(models, name)(**given)
    else:
        model = models.get_model(name, weights=None, **given)
    built: nn.Module = model
    return built


def _build_torch(name: str, settings: dict[str, Any]) -> nn.Module:
    model: nn.Module = FAMILIES[name].make(*settings["size"])
    return model


_BUILDERS: Final = {
    "torch": _build_torch,
    "tv": _build_torchvision,
    "timm": _build_timm,
    "hf": _build_transformers,
}


def _randomise(model: nn.Module) -> nn.Module:
    """Draw all weights, so that none is neutral and each matters for the outputs."""
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() > 1:
                tensor.normal_(0, (tensor.shape[0] / tensor.numel()) ** 0.5)
            else:
                tensor.add_(torch.randn(tensor.shape), alpha=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model
