"""Figures as inline SVG strings: presentation only, deterministic, and of the page's own colour.

Text and lines are drawn in a sentinel that becomes `currentColor`, so one figure reads on light and
dark. Each fabric has a colour, a marker and a dash, so that none is told by colour alone.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from math import log2
from typing import Any

import matplotlib
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fabricbench.report import words

INK = "#010203"
"""The sentinel: no palette holds it; it is replaced by `currentColor`."""
PALETTE = ("#0072b2", "#d55e00", "#008a64", "#b8629a", "#9a7000", "#7a7a7a")
"""After Okabe and Ito, darkened where needed: contrast of 3:1 or more on white and on #14171a."""
MARKERS = ("o", "s", "^", "D", "v", "X")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++")
DASHES: tuple[Any, ...] = ("", (4, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (3, 1), (8, 2))
SIZE = (4.6, 3.0)
"""Inches; the page scales figures to their column."""

LEGEND: Any = {
    "loc": "lower left",
    "bbox_to_anchor": (-0.02, 1.0),
    "ncols": 3,
    "fontsize": 8.5,
    "handlelength": 2.6,
    "columnspacing": 1.2,
}
"""Above the panel."""

STYLE: Any = {
    "hatch.color": INK,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


def by_gpus(
    cells: pd.DataFrame,
    medians: pd.DataFrame,
    *,
    column: str,
    fabrics: Sequence[str],
    label: str,
    title: str,
    ideal: bool = False,
    percent: bool = False,
) -> str:
    """A quantity over GPU count: each repeat a dot, a line through the medians, one series per fabric.

    `cells` holds gpus, fabric and `column`; `medians` gpus, fabric and median. With `ideal`, a line at 1.
    """
    with _panel(title) as (axes, svg):
        shown = [name for name in fabrics if name in set(cells["fabric"])]
        counts = sorted({int(n) for n in cells["gpus"]})
        dots = _dodge(_plain(cells, {"gpus": float, "fabric": str, column: float}), shown, counts)
        lines = _dodge(_plain(medians, {"gpus": float, "fabric": str, "median": float}), shown, counts)
        looks = _looks(fabrics, shown)
        unmarked = looks | {"markers": False}
        sns.lineplot(
            lines, x="gpus", y="median", estimator=None, linewidth=1.6, legend=False, ax=axes, **unmarked
        )
        sns.scatterplot(
            dots, x="gpus", y=column, s=26, alpha=0.7, linewidth=0, legend=False, ax=axes, **_dots(looks)
        )
        if ideal:
            axes.axhline(1, color=INK, alpha=0.55, linewidth=0.9, dashes=(2, 2))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        if len(counts) == 1:
            axes.set_xlim(counts[0] / 2, counts[0] * 2)
        top = max(float(dots[column].max()), 1.0 if ideal else 0.0)
        axes.set_ylim(0, top * 1.12)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        show = words.share if percent else words.compact
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
        axes.set(xlabel="GPUs (ranks)", ylabel=label)
        _legend(axes, fabrics, shown)
    return svg()


def step_parts(computing: pd.DataFrame, exposed: pd.DataFrame, *, fabrics: Sequence[str], title: str) -> str:
    """Time per step in ms by GPU count: a bar per fabric, computing below, exposed communication on top.

    Both frames hold gpus, fabric and median; an exposed time below 0, which is noise, is drawn as none.
    """
    with _panel(title) as (axes, svg):
        low = _plain(computing, {"gpus": int, "fabric": str, "median": float})
        high = _plain(exposed, {"gpus": int, "fabric": str, "median": float})
        shown = [name for name in fabrics if name in set(low["fabric"])]
        counts = sorted(set(low["gpus"]))
        width = 0.8 / len(shown)
        handles: list[Any] = []
        for place, name in enumerate(shown):
            colour = _colour(fabrics, name)
            looks: dict[str, Any] = {"width": 0.9 * width, "edgecolor": colour, "linewidth": 0.8}
            at = [counts.index(n) + (place - (len(shown) - 1) / 2) * width for n in counts]
            below = _heights(low, name, counts)
            axes.bar(at, below, facecolor=(colour, 0.35), **looks)
            hatch = HATCHES[list(fabrics).index(name) % len(HATCHES)]
            looks |= {"facecolor": colour, "edgecolor": INK, "linewidth": 0, "hatch": hatch}
            handles += axes.bar(at, _heights(high, name, counts), bottom=below, **looks)[:1]
        axes.set_xticks(range(len(counts)), [str(n) for n in counts])
        axes.xaxis.grid(False)
        axes.set_xlim(-0.6, max(len(counts), 2) - 0.4)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.compact(value)))
        axes.set(xlabel="GPUs (ranks)", ylabel="ms per step")
        axes.legend(handles, shown, **LEGEND)
    return svg()


def _heights(medians: pd.DataFrame, fabric: str, counts: Sequence[int]) -> list[float]:
    """A fabric's medians by GPU count, 0 where there's none."""
    own = medians[medians["fabric"] == fabric].groupby("gpus")["median"].median()
    return [max(0.0, float(own.get(n, 0.0))) for n in counts]


def by_size(
    curves: pd.DataFrame,
    *,
    quantity: str,
    fabrics: Sequence[str],
    label: str,
    title: str,
    trustworthy_from: float | None = None,
) -> str:
    """Time or bandwidth over message size: median line, band from the 10th to the 90th percentile.

    `quantity` is time_s or bandwidth_bit_s; for the latter each fabric's line rate is drawn. Sizes
    below `trustworthy_from` bytes are shaded.
    """
    with _panel(title) as (axes, svg):
        shown = [name for name in fabrics if name in set(curves["fabric"])]
        middle, low, high = (f"{quantity}_{at}" for at in ("median", "p10", "p90"))
        kinds: dict[str, Callable[[Any], Any]] = dict.fromkeys(("bytes", middle, low, high), float)
        data = _plain(curves, kinds | {"fabric": str}).sort_values("bytes", kind="stable")
        sns.lineplot(
            data,
            x="bytes",
            y=middle,
            estimator=None,
            linewidth=1.5,
            markersize=4.5,
            markeredgewidth=0,
            legend=False,
            ax=axes,
            **_looks(fabrics, shown),
        )
        for name in shown:
            one = data[data["fabric"] == name]
            colour = _colour(fabrics, name)
            axes.fill_between(one["bytes"], one[low], one[high], color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        _size_axis(axes, data["bytes"])
        if quantity == "bandwidth_bit_s":
            _line_rates(axes, curves, fabrics, shown)
        _shade(axes, data["bytes"], trustworthy_from)
        show = _tick_seconds if quantity == "time_s" else words.bit_rate
        axes.yaxis.set_major_locator(
            LogLocator(10, subs=(1.0, 2.0, 5.0) if quantity == "bandwidth_bit_s" else (1.0,))
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set(xlabel="message size", ylabel=label)
        _legend(axes, fabrics, shown)
    return svg()


def by_error(frame: pd.DataFrame, models: Mapping[str, str], *, unresolved: float, title: str) -> str:
    """Each model's error against published rates, a row per rate; hollow markers where a rate was fitted.

    `frame` holds label, fits ("" for a prediction) and `<model>_error` (shares) for each of `models`, which
    names them. Errors below `unresolved` (a share) are shaded; those far beyond all predictions' stand at
    the edge, with their number.
    """
    with _panel(title, (7.0, 0.9 + 0.34 * len(frame))) as (axes, svg):
        rows = frame.reset_index(drop=True)
        errors = 100 * rows[[f"{name}_error" for name in models]].astype(float)
        widest = 1.15 * max(errors[rows["fits"] == ""].abs().max().max(), 200 * unresolved)
        widest = widest if widest == widest else 200 * unresolved
        axes.set_xlim(-widest, widest)
        axes.axvspan(-100 * unresolved, 100 * unresolved, color=INK, alpha=0.08, linewidth=0, zorder=0)
        axes.axvline(0, color=INK, alpha=0.55, linewidth=0.9)
        for at, name in enumerate(models):
            for row, error in errors[f"{name}_error"].dropna().items():
                place = int(str(row))
                height = place + 0.14 * (at - (len(models) - 1) / 2)
                fill = "none" if rows["fits"].iloc[place] else PALETTE[at]
                _at_error(axes, float(error), height, widest, at, fill)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.yaxis.set_major_locator(FixedLocator(list(range(len(rows)))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda _, place: str(rows["label"].iloc[place])))
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: words.percent(value, sign=True) if value else "0")
        )
        axes.set_xlabel("error")
        handles = [
            axes.plot([], [], marker=MARKERS[at], color=PALETTE[at], linestyle="none", markersize=6)[0]
            for at in range(len(models))
        ]
        axes.legend(handles, list(models.values()), **{**LEGEND, "ncols": len(models)})
    return svg()


def _at_error(axes: Axes, error: float, height: float, widest: float, place: int, fill: str) -> None:
    """One marker; at the edge, and with its number, if it is beyond."""
    shown = min(max(error, -0.97 * widest), 0.97 * widest)
    look: dict[str, Any] = {
        "marker": MARKERS[place],
        "color": PALETTE[place],
        "markerfacecolor": fill,
        "linestyle": "none",
    }
    axes.plot(shown, height, markersize=7 if place == 0 else 5.5, **look)
    if shown != error:
        left = error > 0
        axes.annotate(
            f"{error:+.0f} %",
            (shown, height),
            xytext=(-7 if left else 7, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
        )


def _line_rates(axes: Axes, curves: pd.DataFrame, fabrics: Sequence[str], shown: Sequence[str]) -> None:
    """One dashed line per distinct rate, in the first such fabric's colour, named once."""
    drawn: set[float] = set()
    for name in shown:
        rates = curves.loc[curves["fabric"] == name, "line_rate_bit_s"].dropna()
        if rates.empty or float(rates.iloc[0]) in drawn:
            continue
        rate = float(rates.iloc[0])
        drawn.add(rate)
        axes.axhline(rate, color=_colour(fabrics, name), linewidth=1, dashes=(5, 2))
        axes.annotate(
            f"line rate\n{words.bit_rate(rate)}",
            (1, rate),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )


def _shade(axes: Axes, sizes: pd.Series, trustworthy_from: float | None) -> None:
    """Marks sizes at which a shaper's burst lets messages pass faster than the link, with room to say so."""
    if trustworthy_from is None or not (sizes < trustworthy_from).any():
        return
    left, right = axes.get_xlim()
    axes.set_xlim(left, right)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.2)
    axes.axvspan(left, min(trustworthy_from, right), color=INK, alpha=0.08, linewidth=0, zorder=0)
    axes.annotate(
        f"shaping not trustworthy\nbelow {words.size(trustworthy_from)}",
        (0, 1),
        xycoords="axes fraction",
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=7.5,
    )


def _size_axis(axes: Axes, sizes: pd.Series) -> None:
    """At most six sizes as ticks, in powers of two."""
    distinct = sorted({float(value) for value in sizes})
    step = -(-len(distinct) // 6) or 1
    axes.xaxis.set_major_locator(FixedLocator(distinct[::-1][::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.size(value)))


def _plain(frame: pd.DataFrame, columns: dict[str, Callable[[Any], Any]]) -> pd.DataFrame:
    """Columns in plain dtypes, which plotting libraries want; rows without a number are dropped."""
    kept = frame[list(columns)].dropna()
    return pd.DataFrame({name: [kind(value) for value in kept[name]] for name, kind in columns.items()})


def _dodge(frame: pd.DataFrame, shown: Sequence[str], counts: Sequence[int]) -> pd.DataFrame:
    """Sets fabrics side by side at a GPU count, by about a marker's width, so that none hides another."""
    octaves = log2(counts[-1] / counts[0]) or 1.0
    middle = (len(shown) - 1) / 2
    shift = {name: 2 ** (0.02 * octaves * (place - middle)) for place, name in enumerate(shown)}
    return frame.assign(
        gpus=[n * shift[name] for n, name in zip(frame["gpus"], frame["fabric"], strict=True)]
    )


def _tick_seconds(value: float) -> str:
    return words.seconds(value, words.compact)


def _colour(fabrics: Sequence[str], name: str) -> str:
    return PALETTE[list(fabrics).index(name) % len(PALETTE)]


def _looks(fabrics: Sequence[str], shown: Sequence[str]) -> dict[str, Any]:
    """Colour, marker and dash by a fabric's place among all fabrics, the same in every figure."""
    place = {name: list(fabrics).index(name) for name in shown}
    return {
        "hue": "fabric",
        "hue_order": list(shown),
        "palette": {name: PALETTE[at % len(PALETTE)] for name, at in place.items()},
        "style": "fabric",
        "style_order": list(shown),
        "markers": {name: MARKERS[at % len(MARKERS)] for name, at in place.items()},
        "dashes": {name: DASHES[at % len(DASHES)] for name, at in place.items()},
    }


def _dots(looks: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in looks.items() if name != "dashes"}


def _legend(axes: Axes, fabrics: Sequence[str], shown: Sequence[str]) -> None:
    """Fabrics above the panel, each with its line and marker."""
    looks = _looks(fabrics, shown)
    handles = []
    for name in shown:
        dash = looks["dashes"][name]
        (line,) = axes.plot([], [], color=looks["palette"][name], marker=looks["markers"][name], markersize=5)
        if dash:
            line.set_dashes(dash)
        handles.append(line)
    axes.legend(handles, list(shown), **LEGEND)


@contextmanager
def _panel(title: str, size: tuple[float, float] = SIZE) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """An empty panel in the page's style, and what turns it into SVG once it is drawn."""
    finished: list[str] = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        yield axes, lambda: finished[0]
        sns.despine(ax=axes)
        finished.append(_svg(figure, title))


def _svg(figure: Figure, title: str) -> str:
    """The figure as an <svg> element with its own ids, no size of its own, and a spoken title."""
    buffer = io.StringIO()
    salt = hashlib.sha256(title.encode()).hexdigest()[:10]
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>\s*", "", text, flags=re.DOTALL)  # would hold for the whole page
    text = re.sub(r'<svg[^>]*?viewBox="([^"]+)"[^>]*>', _opening(title), text, count=1)
    prefix = f"f{salt}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = text.replace("url(#", f"url(#{prefix}")
    return text.replace(INK, "currentColor").strip()


def _opening(title: str) -> Callable[[re.Match[str]], str]:
    def tag(found: re.Match[str]) -> str:
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{found[1]}" role="img" aria-label="{escape(title)}">'
        )

    return tag
