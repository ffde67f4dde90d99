"""Where a plot stands: its axes, title and legend, and the fonts of what is saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, get_args

from wattkeeper.policies.errors import EnvironmentLacks, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Legend = Literal["inside", "outside", "none"]

FONTS: Final[dict[Any, Any]] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}
"""TrueType fonts in PDF and PostScript, as publishers want them; texts in SVG stay texts."""


NARROW: Final = 5.0
"""Width of a figure in inches below which its fonts are `SMALL`, as in a column of a paper."""

SMALL: Final = 8.0
"""Size of small fonts, points."""


class FrameOptions(TypedDict, total=False):
    """What every plot accepts; see `Frame`."""

    ax: Axes
    size: tuple[float, float]
    title: bool
    legend: Legend


@dataclass(frozen=True)
class Frame:
    """What surrounds a plot.

    Attributes:
        ax: Axes to draw on; those of a new figure if absent.
        size: Width and height of the new figure, inches; those of matplotlib if absent.
        title: Whether there is a title.
        legend: Where the legend of several variants stands: in the axes, below them, or nowhere.

    Raises:
        InputError: If a value is none of these.
    """

    ax: Axes | None = None
    size: tuple[float, float] | None = None
    title: bool = True
    legend: Legend = "inside"

    def __post_init__(self) -> None:
        """Check the values that matplotlib does not check."""
        if self.legend not in get_args(Legend):
            known = ", ".join(get_args(Legend))
            raise InputError(f"legend: found {self.legend!r}; must be one of {known}")
        if self.size is None:
            return
        if self.ax is not None:
            raise InputError("size: is that of a new figure; the axes of ax have theirs")
        if not (isinstance(self.size, tuple | list) and len(self.size) == 2 and min(self.size) > 0):
            raise InputError(f"size: found {self.size!r}; must be width and height, inches > 0")

    @contextmanager
    def drawn(self, title: str) -> Iterator[Axes]:
        """The axes to draw on; what was drawn then gets the title and its legend.

        The figure will be saved with `FONTS`; the settings of matplotlib stay as they are.

        Raises:
            EnvironmentLacks: If matplotlib is not installed.
            InputError: If `ax` is no axes.
        """
        try:
            from matplotlib import pyplot, rc_context
            from matplotlib.axes import Axes
        except ImportError as error:
            raise EnvironmentLacks(
                "plots need matplotlib; install it: pip install 'wattkeeper[plots]'"
            ) from error
        if self.ax is not None and not isinstance(self.ax, Axes):
            raise InputError(f"ax: found {type(self.ax).__name__}; must be one matplotlib Axes")
        small = self.size is not None and self.size[0] < NARROW
        with rc_context({"font.size": SMALL} if small else None):
            axes = self.ax or pyplot.subplots(figsize=self.size, layout="constrained")[1]
            _embed_fonts(axes.figure.canvas.figure)
            yield axes
            if self.title:
                axes.set_title(literal(title))
            if small:
                axes.tick_params(which="both", labelsize=SMALL)  # of ticks that are yet to come
            if self.legend != "none" and len(axes.get_legend_handles_labels()[0]) > 1:
                _add_legend(axes, outside=self.legend == "outside")


def literal(text: str) -> str:
    """A text that matplotlib shows as it is: no TeX, and no name that legends leave out."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def _add_legend(axes: Axes, *, outside: bool) -> None:
    """Add a legend, which leaves the data free, or stands below the axis in columns that fit."""
    from matplotlib import rcParams
    from matplotlib.transforms import ScaledTranslation

    if not outside:
        axes.legend(framealpha=0.7)
        return
    figure, size = axes.figure, rcParams["font.size"]
    alone = len(figure.axes) == 1
    room = 72 * (figure if alone else axes).bbox.width / figure.dpi / size
    below = ScaledTranslation(0, -(2.4 * size + 10) / 72, figure.dpi_scale_trans)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        borderaxespad=0,
        frameon=False,
        handlelength=2.2,
        handletextpad=0.5,
        columnspacing=1.2,
        ncols=_count_columns(list(map(len, axes.get_legend_handles_labels()[1])), room),
    )


def _count_columns(lengths: Sequence[int], room: float) -> int:
    """The most columns of labels of these lengths that fit into a width, in sizes of the font."""
    for columns in range(len(lengths), 1, -1):
        rows = math.ceil(len(lengths) / columns)
        longest = [max(lengths[begin : begin + rows]) for begin in range(0, len(lengths), rows)]
        if sum(4 + 0.6 * length for length in longest) <= room:
            return columns
    return 1


def _embed_fonts(figure: Figure) -> None:
    """Have the figure saved with `FONTS`, now and later."""
    if not isinstance(figure.savefig, partial):
        figure.savefig = partial(_save, figure.savefig)  # type: ignore[method-assign]


def _save(save: Callable[..., None], *arguments: Any, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context(FONTS):
        save(*arguments, **options)
