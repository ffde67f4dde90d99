"""Pairs of real architectures, with what a transfer can keep of the parent's function.

``python -m tests.support.real_pairs`` transfers all pairs whose library is there, runs parent and
child, and prints a table by kind of pair. Families may be named as arguments.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from tests.support.real_models import LIBRARIES, Model
from wattkeeper.live import TransferReport, transfer

Right = Literal["all", "all but the head", "weights", "nothing"]


class Pair(NamedTuple):
    """A parent and a child, and the most that a transfer can keep of the parent's function."""

    family: str
    kind: str
    parent: Model
    child: Model
    right: Right
    why: str


class Family(NamedTuple):
    """Models that differ from a base in some settings.

    Attributes:
        library: `tv`, `timm` or `hf`.
        model: Name of the model in the library.
        base: Settings of the base.
        wider: Settings of one with more units, each a multiple of the base's, if all is kept.
        deeper: Settings of one with more layers, if all is kept.
        head: Settings of one with another head.
        others: Further pairs: kind, settings of the child, what is kept, and why. If the settings
            name a `model`, the child is one of that name.
    """

    library: str
    model: str
    base: dict[str, Any]
    wider: dict[str, Any] | None = None
    deeper: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    others: tuple[tuple[str, dict[str, Any], Right, str], ...] = ()


BARE: Final = {"num_classes": 0}
CLASSES: Final = {"num_classes": 7}

SMALLER: Final = "fewer units cannot compute all"
TOKENS: Final = "tokens of another size or number"
OTHER: Final = "other operators"
POSITIONS: Final = "positions are treated otherwise by width"

VIT: Final = {"img_size": 64, "embed_dim": 32, "depth": 2, "num_heads": 2}
WIDE_VIT: Final = {"embed_dim": 64, "num_heads": 4}
STAGES: Final = {"img_size": 64, "window_size": 4, "embed_dim": 32, "num_heads": (2, 4, 8, 16)}
SHALLOW: Final = {"depths": (1, 1, 2, 1)}
CONVNEXT: Final = {**SHALLOW, "dims": (16, 32, 64, 128)}
WIDE_CONVNEXT: Final = {"dims": (32, 64, 128, 256)}
DEEP: Final = {"depths": (2, 1, 3, 2)}
RESNET: Final = {"layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128), "zero_init_last": False}
WIDE_RESNET: Final = {"channels": (32, 64, 128, 256)}
DEEP_RESNET: Final = {"layers": (2, 1, 3, 2)}
WIDE: Final = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
ROTARY: Final = {"head_dim": 16, "num_key_value_heads": 2}
WIDE_ROTARY: Final = {**WIDE, "num_key_value_heads": 4}
LAYERS: Final = {"num_hidden_layers": 4}
LABELS: Final = {"num_labels": 5}

Other = tuple[str, dict[str, Any], Right, str]


def other(kind: str, right: Right, why: str, **settings: Any) -> Other:
    return kind, settings, right, why


def encoder(
    name: str, settings: dict[str, Any] | None = None, wider: dict[str, Any] | None = None
) -> Family:
    """A post-norm encoder of words, and its heads."""
    return Family(
        "hf",
        f"{name}ForSequenceClassification",
        settings or {},
        wider or WIDE,
        LAYERS,
        LABELS,
        (
            other("task", "all but the head", "", model=f"{name}ForMaskedLM"),
            other("body alone", "all but the head", "", model=f"{name}Model"),
        ),
    )


def decoder(name: str, base: dict[str, Any], wider: dict[str, Any]) -> Family:
    """A pre-norm decoder of words with a head."""
    return Family(
        "hf",
        f"{name}ForCausalLM",
        base,
        wider,
        LAYERS,
        None,
        (
            other("body alone", "all but the head", "", model=f"{name}Model"),
            other("task", "all but the head", "", model=f"{name}ForSequenceClassification"),
        ),
    )


FAMILIES: Final[dict[str, Family]] = {
    # torchvision
    "tv resnet": Family(
        "tv",
        "resnet18",
        {},
        None,
        {"model": "resnet34"},
        CLASSES,
        (other("unrelated", "weights", OTHER, model="squeezenet1_1"),),
    ),
    "tv convnext": Family(
        "tv",
        "ConvNeXt",
        CONVNEXT,
        WIDE_CONVNEXT,
        DEEP,
        CLASSES,
        (other("narrower", "weights", SMALLER, dims=(8, 16, 32, 64)),),
    ),
    "tv swin": Family(
        "tv",
        "SwinTransformer",
        {"embed_dim": 32, "depths": [1, 1, 2, 1], "num_heads": [2, 4, 8, 16]},
        {"embed_dim": 64, "num_heads": [4, 8, 16, 32]},
        {"depths": [1, 1, 4, 1]},
        CLASSES,
        (other("settings", "weights", "windows of another size", window_size=[2, 2]),),
    ),
    "tv vit": Family(
        "tv",
        "VisionTransformer",
        {
            "image_size": 64,
            "patch_size": 16,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 32,
            "mlp_dim": 64,
        },
        {"num_heads": 4, "hidden_dim": 64, "mlp_dim": 128},
        {"num_layers": 4},
        CLASSES,
        (other("settings", "weights", TOKENS, patch_size=32),),
    ),
    "tv squeezenet": Family(
        "tv",
        "squeezenet1_1",
        {},
        None,
        None,
        CLASSES,
        (other("settings", "weights", "pools at other places", model="squeezenet1_0"),),
    ),
    "tv mnasnet": Family(
        "tv",
        "mnasnet0_5",
        {},
        {"model": "mnasnet1_0"},
        None,
        CLASSES,
        (other("unrelated", "weights", OTHER, model="shufflenet_v2_x0_5"),),
    ),
    "tv shufflenet": Family(
        "tv",
        "shufflenet_v2_x0_5",
        {},
        None,
        None,
        CLASSES,
        (
            other(
                "wider", "weights", "units are shuffled across groups", model="shufflenet_v2_x1_0"
            ),
        ),
    ),
    "tv mobilenet": Family(
        "tv",
        "mobilenet_v3_small",
        {},
        None,
        None,
        CLASSES,
        (other("settings", "weights", "other kernels and strides", model="mobilenet_v3_large"),),
    ),
    # timm
    "resnet": Family(
        "timm",
        "resnet18",
        RESNET,
        WIDE_RESNET,
        DEEP_RESNET,
        CLASSES,
        (
            other("head", "all but the head", "", **BARE),
            other("narrower", "weights", SMALLER, channels=(8, 16, 32, 64)),
            other("unrelated", "weights", OTHER, model="vit_tiny_patch16_224", settings=VIT),
        ),
    ),
    "resnext": Family(
        "timm",
        "resnext50_32x4d",
        {**RESNET, "cardinality": 4, "base_width": 4},
        None,
        DEEP_RESNET,
        CLASSES,
    ),
    "seresnet": Family("timm", "seresnet50", RESNET, WIDE_RESNET, DEEP_RESNET, CLASSES),
    "resnetv2": Family(
        "timm",
        "resnetv2_50",
        {"layers": (1, 1, 1, 1), "channels": (32, 64, 128, 256)},
        {"channels": (64, 128, 256, 512)},
        DEEP_RESNET,
        CLASSES,
    ),
    "vision transformer": Family(
        "timm",
        "vit_tiny_patch16_224",
        VIT,
        WIDE_VIT,
        {"depth": 4},
        CLASSES,
        (
            other("head", "all but the head", "", **BARE),
            other("wider", "all", "mean expansion", embed_dim=48, num_heads=3),
            other("settings", "weights", TOKENS, patch_size=32),
            other("narrower", "weights", SMALLER, embed_dim=16, num_heads=1),
            other("unrelated", "weights", OTHER, model="convnext_tiny", settings=CONVNEXT),
        ),
    ),
    "deit": Family(
        "timm",
        "deit_tiny_distilled_patch16_224",
        VIT,
        WIDE_VIT,
        {"depth": 4},
        CLASSES,
        (other("head", "all but the head", "", **BARE),),
    ),
    "convnext": Family(
        "timm",
        "convnext_tiny",
        CONVNEXT,
        WIDE_CONVNEXT,
        DEEP,
        CLASSES,
        (other("head", "all but the head", "", **BARE),),
    ),
    "convnextv2": Family(
        "timm",
        "convnextv2_tiny",
        CONVNEXT,
        None,
        DEEP,
        CLASSES,
        (other("wider", "all", "", dims=(32, 64, 128, 256)),),
    ),
    "efficientnet": Family(
        "timm",
        "efficientnet_b0",
        {},
        None,
        {"model": "efficientnet_b1"},
        CLASSES,
        (
            other("wider", "all", "", model="efficientnet_b2"),
            other("unrelated", "weights", OTHER, model="regnetx_002"),
        ),
    ),
    "mobilenetv2": Family(
        "timm", "mobilenetv2_050", {}, {"model": "mobilenetv2_100"}, None, CLASSES
    ),
    "mobilenetv3": Family(
        "timm",
        "mobilenetv3_small_050",
        {},
        None,
        None,
        CLASSES,
        (
            other("head", "all but the head", "", **BARE),
            other("wider", "weights", "rounding ends a shortcut", model="mobilenetv3_small_100"),
        ),
    ),
    "mnasnet": Family("timm", "mnasnet_050", {}, {"model": "mnasnet_100"}, None, CLASSES),
    "swin": Family(
        "timm",
        "swin_tiny_patch4_window7_224",
        {**STAGES, **SHALLOW},
        {"embed_dim": 64, "num_heads": (4, 8, 16, 32)},
        {"depths": (1, 1, 4, 1)},
        CLASSES,
        (
            other("head", "all but the head", "", **BARE),
            other("settings", "weights", "windows of another size", window_size=8),
        ),
    ),
    "swinv2": Family(
        "timm",
        "swinv2_tiny_window8_256",
        {**STAGES, **SHALLOW},
        None,
        None,
        CLASSES,
        (
            other("wider", "all", "", embed_dim=64, num_heads=(4, 8, 16, 32)),
            other("deeper", "all", "branches end in norms, then are added", depths=(1, 1, 4, 1)),
        ),
    ),
    "regnet": Family(
        "timm",
        "regnetx_002",
        {},
        None,
        None,
        CLASSES,
        (other("settings", "weights", "groups of other widths", model="regnetx_004"),),
    ),
    "densenet": Family(
        "timm",
        "densenet121",
        {"growth_rate": 8, "block_config": (2, 2, 3, 2)},
        None,
        {"block_config": (3, 2, 4, 2)},
        CLASSES,
        (other("wider", "all", "", growth_rate=16),),
    ),
    "vgg": Family(
        "timm",
        "vgg.VGG",
        {
            "cfg": [8, "M", 16, "M", 32, "M", 64, "M", 64, "M"],
            "mlp_ratio": 0.01,
            "norm_layer": None,
        },
        None,
        {"cfg": [8, 8, "M", 16, "M", 32, 32, "M", 64, "M", 64, "M"]},
        CLASSES,
        (other("settings", "all", "norms are inserted", model="vgg11_bn", settings={}),),
    ),
    "beit": Family("timm", "beit_base_patch16_224", VIT, WIDE_VIT, {"depth": 4}, CLASSES),
    "eva": Family(
        "timm", "eva02_tiny_patch14_224", {**VIT, "patch_size": 16}, WIDE_VIT, {"depth": 4}, CLASSES
    ),
    "mixer": Family(
        "timm",
        "mlp_mixer.MlpMixer",
        {"img_size": 64, "embed_dim": 32, "num_blocks": 2},
        {"embed_dim": 64},
        {"num_blocks": 4},
        CLASSES,
    ),
    "cait": Family("timm", "cait_xxs24_224", VIT, None, {"depth": 4}, CLASSES),
    "pvt": Family("timm", "pvt_v2_b0", {}, {"model": "pvt_v2_b1"}, None, CLASSES),
    "metaformer": Family(
        "timm",
        "metaformer.MetaFormer",
        {**CONVNEXT, "res_scale_init_values": None, "layer_scale_init_values": 1e-5},
        {"dims": (32, 64, 128, 256)},
        {"depths": (2, 1, 3, 2)},
        CLASSES,
    ),
    "convmixer": Family(
        "timm",
        "convmixer.ConvMixer",
        {"dim": 16, "depth": 2, "patch_size": 4},
        {"dim": 32},
        None,
        CLASSES,
        (other("deeper", "weights", "an activation outside of the residual", depth=4),),
    ),
    "res2net": Family(
        "timm",
        "res2net50_26w_4s",
        {"layers": (1, 1, 1, 1), "zero_init_last": False},
        None,
        DEEP_RESNET,
        CLASSES,
    ),
    "repvgg": Family("timm", "repvgg_a0", {}, None, None, CLASSES),
    "ghostnet": Family("timm", "ghostnet_050", {}, None, None, CLASSES),
    "xcit": Family("timm", "xcit_nano_12_p16_224", VIT, None, {"depth": 4}, CLASSES),
    # transformers
    "bert": encoder("Bert"),
    "masked bert": Family(
        "hf",
        "BertForMaskedLM",
        {},
        WIDE,
        LAYERS,
        None,
        (other("task", "all but the head", "", model="BertForSequenceClassification"),),
    ),
    "roberta": encoder("Roberta"),
    "xlm-roberta": encoder("XLMRoberta"),
    "electra": encoder("Electra", {"embedding_size": 16}, {**WIDE, "embedding_size": 32}),
    "distilbert": Family(
        "hf",
        "DistilBertForSequenceClassification",
        {"hidden_dim": 64},
        {**WIDE, "hidden_dim": 128},
        LAYERS,
        LABELS,
        (
            other("task", "all but the head", "", model="DistilBertForMaskedLM"),
            other("body alone", "all but the head", "", model="DistilBertModel"),
        ),
    ),
    "albert": Family(
        "hf",
        "AlbertForSequenceClassification",
        {"embedding_size": 32},
        None,
        None,
        LABELS,
        (
            other("wider", "all", "", **WIDE),
            other("deeper", "weights", "the same layer once more", **LAYERS),
            other("body alone", "all but the head", "", model="AlbertModel"),
        ),
    ),
    "mpnet": encoder("MPNet"),
    "deberta": Family(
        "hf",
        "DebertaV2ForSequenceClassification",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "pooler_hidden_size": 32,
        },
        None,
        LAYERS,
        LABELS,
        (other("body alone", "all but the head", "", model="DebertaV2Model"),),
    ),
    "gpt2": Family(
        "hf",
        "GPT2LMHeadModel",
        {"n_inner": 64},
        {**WIDE, "n_inner": 128},
        LAYERS,
        None,
        (
            other("body alone", "all but the head", "", model="GPT2Model"),
            other("task", "all but the head", "", model="GPT2ForSequenceClassification"),
            other("settings", "weights", "another vocabulary", vocab_size=96),
            other("unrelated", "weights", OTHER, model="BertModel"),
        ),
    ),
    "opt": decoder(
        "OPT",
        {"ffn_dim": 64, "word_embed_proj_dim": 32},
        {**WIDE, "ffn_dim": 128, "word_embed_proj_dim": 64},
    ),
    "llama": decoder("Llama", ROTARY, WIDE_ROTARY),
    "mistral": decoder("Mistral", ROTARY, WIDE_ROTARY),
    "qwen2": decoder("Qwen2", {**ROTARY, "tie_word_embeddings": True}, WIDE_ROTARY),
    "qwen3": decoder("Qwen3", ROTARY, WIDE_ROTARY),
    "gemma": decoder("Gemma", ROTARY, WIDE_ROTARY),
    "phi": decoder("Phi", {}, WIDE),
    "gpt-neox": decoder("GPTNeoX", {}, WIDE),
    "bloom": Family(
        "hf",
        "BloomForCausalLM",
        {},
        {"hidden_size": 64},
        LAYERS,
        None,
        (
            other("more heads", "weights", POSITIONS, hidden_size=64, num_attention_heads=4),
            other("body alone", "all but the head", "", model="BloomModel"),
        ),
    ),
    "t5": Family(
        "hf",
        "T5ForConditionalGeneration",
        {"d_kv": 16, "d_ff": 64, "num_decoder_layers": 2},
        {**WIDE, "d_ff": 128},
        {**LAYERS, "num_decoder_layers": 3},
        None,
        (other("body alone", "all but the head", "", model="T5Model"),),
    ),
    "bart": Family(
        "hf",
        "BartForConditionalGeneration",
        {
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
        },
        {**WIDE, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "decoder_attention_heads": 4},
        None,
        None,
        (
            other("deeper", "weights", "up to an epsilon", **LAYERS, decoder_layers=3),
            other("body alone", "all but the head", "", model="BartModel"),
        ),
    ),
    "transformers vit": Family(
        "hf",
        "ViTForImageClassification",
        {"image_size": 64, "patch_size": 16},
        WIDE,
        LAYERS,
        LABELS,
        (other("body alone", "all but the head", "", model="ViTModel"),),
    ),
}


def _plain(family: str, kind: str, sizes: tuple[Any, Any], right: Right) -> Pair:
    parent, child = (Model("torch", family, {"size": size}) for size in sizes)
    return Pair(family, kind, parent, child, right, "")


PLAIN: Final = (
    _plain("resnet", "same", ((8,), (8,)), "all"),
    _plain("resnet", "wider", ((8,), (12,)), "all"),
    _plain("resnet", "deeper", ((8,), (8, (2, 1))), "all"),
    _plain("resnet", "narrower", ((16,), (8,)), "weights"),
    _plain("densenet", "deeper", ((4, (2, 2)), (4, (3, 2))), "all"),
    _plain("convnext", "wider", ((8,), (16,)), "all"),
    _plain("efficientnet", "deeper", ((8,), (8, 3)), "all"),
    _plain("vision transformer", "wider", ((8,), (16,)), "all"),
    _plain("language", "deeper", ((8,), (8, 2, 2)), "all"),
    _plain("encoder", "wider", ((8,), (16, 4)), "all"),
)
"""Pairs that need torch alone."""

KNOWN_NOT_KEPT: Final = frozenset(
    {("bloom", "wider"), ("gemma", "wider"), ("deberta", "body alone")}
)
"""Pairs of which a transfer keeps less than can be kept, by family and kind."""


def list_pairs(name: str) -> Iterator[Pair]:
    """All pairs of a family: settings are added to those of the base."""
    library, model, base, wider, deeper, head, others = FAMILIES[name]
    parent = Model(library, model, base)
    cases: list[Other] = [("same", {}, "all", "")]
    usual: tuple[tuple[str, dict[str, Any] | None, Right], ...] = (
        ("wider", wider, "all"),
        ("deeper", deeper, "all"),
        ("head", head, "all but the head"),
    )
    cases += [(kind, given, right, "") for kind, given, right in usual if given is not None]
    for kind, given, right, why in (*cases, *others):
        changes = dict(given)
        settings = {**changes.pop("settings", base), **changes}
        child = Model(library, settings.pop("model", model), settings)
        yield Pair(name, kind, parent, child, right, why)


class Outcome(NamedTuple):
    """What a transfer did, and what running both models found."""

    pair: Pair
    report: TransferReport
    seconds: float

    @property
    def is_false_kept(self) -> bool:
        """Whether more was claimed or proven than is so."""
        found = self.report.verification
        assert found is not None
        return (
            RANKS[found.proven] > RANKS[found.found]
            or RANKS[self.report.kept] > RANKS[self.pair.right]
        )

    @property
    def is_false_not_kept(self) -> bool:
        """Whether less was claimed than can be so, or than is so."""
        found = self.report.verification
        assert found is not None
        return RANKS[self.report.kept] < max(RANKS[self.pair.right], RANKS[found.found])

    def __str__(self) -> str:
        report, pair = self.report, self.pair
        mark = "FALSE KEPT" * self.is_false_kept + "not kept" * self.is_false_not_kept
        why = report.lost_in_eval[0] if mark and report.lost_in_eval else ""
        cells = (
            pair.family,
            pair.kind,
            pair.right,
            report.kept,
            f"{report.coverage:.1%}",
            mark,
            why,
        )
        return f"{'  '.join(cells)}  [{report.verification}]" if mark else "  ".join(cells)


RANKS: Final = {
    **dict.fromkeys(("nothing", "weights", "neither", "not run"), 0),
    "all but the head": 1,
    "all": 2,
}
"""Of `Right` and of what a run found: how much of the function it is."""


def examine(pair: Pair) -> Outcome:
    """Transfer a pair, and run both."""
    began_s = time.perf_counter()
    parent, child = pair.parent.build(1), pair.child.build(2)
    report = transfer(parent, child, pair.parent.inputs, verify=True)
    return Outcome(pair, report, time.perf_counter() - began_s)


def is_there(name: str) -> bool:
    """Whether the library of a family is installed."""
    return importlib.util.find_spec(LIBRARIES[FAMILIES[name].library]) is not None


def main(names: list[str]) -> None:
    names = names or [name for name in FAMILIES if is_there(name)]
    outcomes = []
    for name in names:
        for pair in list_pairs(name):
            outcomes.append(examine(pair))
            print(outcomes[-1], flush=True)
    print("\nkind  pairs  can be kept  kept  false kept  false not kept  filled")
    for kind in [*dict.fromkeys(outcome.pair.kind for outcome in outcomes), "all"]:
        rows = [each for each in outcomes if kind in (each.pair.kind, "all")]
        able = [each for each in rows if RANKS[each.pair.right]]
        filled = sum(each.report.coverage for each in rows) / len(rows)
        counts = (
            len(rows),
            len(able),
            sum(not each.is_false_not_kept for each in able),
            sum(each.is_false_kept for each in rows),
            sum(each.is_false_not_kept for each in rows),
        )
        print("  ".join((kind, *map(str, counts), f"{filled:.1%}")))


if __name__ == "__main__":
    main(sys.argv[1:])
