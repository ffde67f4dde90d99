"""Sets of operators with a property in common, by ATen's names."""

from typing import Final


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


CONVOLUTIONS: Final = _names("conv1d conv2d conv3d")

TRANSPOSED: Final = _names("conv_transpose1d conv_transpose2d")
"""Convolutions whose weights have inputs before outputs."""

DENSE: Final = _names("linear transposed_linear")
"""Layers of which each output unit reads all input units, at each position."""

INPUTS_FIRST: Final = TRANSPOSED | {"transposed_linear"}
"""Layers whose weights have inputs before outputs."""

NORMS: Final = _names("batch_norm layer_norm group_norm instance_norm rms_norm")

TABLES: Final = _names("parameter buffer")
"""Parameters and buffers that are used as values."""

HOLDERS: Final = (
    CONVOLUTIONS | TRANSPOSED | NORMS | _names("linear embedding lstm gru attention prelu")
)
"""Operators that hold their parameters; elsewhere a parameter is an operator of its own."""

DATA: Final = _names("input self indices")
"""Arguments of `HOLDERS` that are data, even where a parameter is given."""

TRANSPARENT: Final = _names(
    "dropout feature_dropout alpha_dropout contiguous clone detach alias to _to_copy lift_fresh"
)
"""Operators that change no value in eval mode."""

SCALED: Final = _names("add sub mul div")

POINTWISE: Final = (
    TRANSPARENT
    | SCALED
    | _names(
        "relu relu6 leaky_relu prelu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid",
        "softplus softsign tanh sigmoid logsigmoid maximum minimum pow cast always_dropout",
    )
)

UNIFORM: Final = _names("zeros ones full new_zeros new_ones zeros_like ones_like")
"""Operators that create tensors of one repeated value."""

DRAWS: Final = _names(
    "rand rand_like randn randn_like randint bernoulli normal uniform exponential"
)
"""Operators that draw at random."""

VIEWS: Final = _names("view reshape flatten unflatten _unsafe_view squeeze unsqueeze")

ORDERINGS: Final = _names("permute transpose t numpy_T mT movedim")

PARTS: Final = _names("chunk split split_with_sizes tensor_split unbind getitem select slice")

REARRANGING: Final = TRANSPARENT | VIEWS | ORDERINGS | PARTS
"""Operators whose results are elements of their input."""

NON_NODES: Final = (
    REARRANGING | UNIFORM | _names("input constant arange expand repeat cast always_dropout")
)
"""Operators that only pass on, round, rearrange or create values: no nodes of a graph."""

CLAMPS: Final = _names("relu hardtanh relu6")
"""Activations that are idempotent."""

KEEPS_RANGE: Final = REARRANGING | _names(
    "max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d mean"
)
"""Operators whose results are in the range of their input."""

MEANS: Final = _names("adaptive_avg_pool1d adaptive_avg_pool2d")
"""Operators that compute the mean over all positions if they have one output position."""

PASSES_ZERO: Final = (
    TRANSPARENT | VIEWS | ORDERINGS | MEANS | _names("getitem relu gelu silu avg_pool1d avg_pool2d")
)
"""Operators whose result is zero if their first input is."""

NEUTRAL: Final = _names("dtype generator memory_format copy implicit")
"""Arguments that change no value."""

SIZES: Final = NEUTRAL | _names(
    "size shape sizes split_size split_sizes normalized_shape num_groups groups heads"
)
"""Arguments that follow from widths, or that change no value."""

WRITERS: Final = CONVOLUTIONS | TRANSPOSED | TABLES | DENSE | _names("embedding attention")
"""Operators whose results are linear in the weights that they hold."""

CARRIERS: Final = (
    TRANSPARENT
    | VIEWS
    | ORDERINGS
    | MEANS
    | _names("add sub cat expand getitem select slice mean avg_pool1d avg_pool2d")
)
"""Operators that are linear and treat all units alike."""

COMMUTING: Final = _names("add mul maximum minimum")

LINEAR: Final = REARRANGING | _names(
    "expand linear transposed_linear matmul bmm mul div attention scaled_dot_product_attention cat"
)
"""Operators whose results scale with their input."""
