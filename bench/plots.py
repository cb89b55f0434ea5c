"""The benchmark's pictures, as SVG files."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

OURS, OTHERS = "#0072b2", "#b0b7c3"


def bars(path: Path, title: str, axis: str, values: dict[str, float], ours: tuple[str, ...]) -> None:
    """Horizontal bars, the longest above."""
    names = sorted(values, key=values.get)
    figure, axes = pyplot.subplots(figsize=(8, 0.36 * len(names) + 1.2), layout="constrained")
    axes.barh(names, [values[name] for name in names], color=[OURS if name.startswith(ours) else OTHERS for name in names])
    axes.bar_label(axes.containers[0], [f"{values[name]:,.0f}" for name in names], padding=3)
    axes.set_title(title, loc="left")
    axes.set_xlabel(axis)
    finish(figure, axes, path)


def curves(path: Path, title: str, axes_names: tuple[str, str], series: dict[str, list[tuple[float, float]]], ours: tuple[str, ...]) -> None:
    """Lines on logarithmic axes, ours in colour and in front."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, points in series.items():
        mine = name.startswith(ours)
        axes.plot(*zip(*points), label=name, marker="o", linewidth=2.5 if mine else 1.5, zorder=3 if mine else 2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left")
    axes.set_xlabel(axes_names[0])
    axes.set_ylabel(axes_names[1])
    axes.legend(fontsize="small", frameon=False)
    finish(figure, axes, path)


def finish(figure, axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
