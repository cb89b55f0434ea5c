"""Movies: two-dimensional histograms over the epochs, with the same axes and colours in each frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy

from turbidite._arguments import Axis, HistogramArguments
from turbidite._axes import drawn_edges, headline, module
from turbidite._checks import real
from turbidite._optional import needed
from turbidite._progress import Tell
from turbidite._units import Units
from turbidite.errors import UsageError
from turbidite.histograms import Histogram, HistogramAxis, color_scale, draw_mesh, left_out, shown_values

__all__ = ["checked_rate", "format_of", "write_movie"]

_MAX_RATE = 50
"""Maximum number of frames per second that programs show of a GIF."""

_DPI = 100
_GREYS = 32

Count = Callable[[HistogramArguments, Sequence[int]], Histogram]
"""Counts the rows of a request."""


def checked_rate(frames_per_second: Any) -> float:
    """Returns a number of frames per second, or refuses it."""
    rate = real(frames_per_second)
    if rate is None or not 0 < rate <= _MAX_RATE:
        raise UsageError(f"frames_per_second: a number above 0, up to {_MAX_RATE}, is needed, not {frames_per_second!r}")
    return rate


def format_of(path: str | os.PathLike[str]) -> str:
    """Returns the format of a movie by its name: ``gif`` or ``html``."""
    ending = Path(os.fsdecode(path)).suffix.lower().lstrip(".")
    if ending not in ("gif", "html"):
        raise UsageError(f"path: a movie is a .gif or .html file, not {os.fsdecode(path)!r}")
    return ending


def write_movie(
    path: str,
    request: HistogramArguments,
    epochs: Sequence[int],
    count: Count,
    *,
    units: Units | None,
    frames_per_second: float,
    options: dict[str, Any],
    tell: Tell | None,
) -> None:
    """Writes a movie of the histograms of single epochs. Each epoch is a step of progress when it is read, and when it is drawn."""
    axes = _fixed_axes(request, epochs, count)
    first: Histogram | None = None
    values: list[numpy.ma.MaskedArray[Any, Any]] = []
    words: list[str | None] = []
    ends: list[float] = []
    for number, epoch in enumerate(epochs):
        frame = count({**request, "axes": axes, "epochs": [epoch]}, [epoch])
        shown = shown_values(frame, units)
        # Counts need no more digits; sums may be beyond the range.
        values.append(numpy.ma.masked_array(shown, dtype="f4") if frame.sums is None else shown)
        words.append(left_out(frame))
        finite = shown.compressed()
        finite = finite[numpy.isfinite(finite)]
        ends += [finite.min(), finite.max()] if finite.size else []
        if first is None or (frame.counts.any() and not first.counts.any()):
            first = frame
        if tell is not None:
            tell(number + 1, 2 * len(epochs))
    if first is None:
        raise UsageError("epochs: a movie needs at least one epoch")
    if "norm" not in options and not {"vmin", "vmax"} & set(options):
        options = {**options, "norm": color_scale(numpy.array(ends, "f8"), first.sums is None)}
    figure = module("figure").Figure(figsize=(6.8, 4.8), layout="constrained", dpi=_DPI)
    module("backends.backend_agg").FigureCanvasAgg(figure)
    ax = figure.subplots()
    mesh = draw_mesh(first, ax, units, options)
    # All titles have the same number of lines, so that the layout of the first frame fits each.
    blank = " " if any(words) else None

    def drawn() -> Iterator[Any]:
        for number, epoch in enumerate(epochs):
            if mesh is not None:
                mesh.set_array(values[number])
            headline(ax, [epoch], request["where"], words[number] or blank)
            figure.canvas.draw()
            figure.set_layout_engine("none")
            yield figure
            if tell is not None:
                tell(len(epochs) + number + 1, 2 * len(epochs))

    writer = {"gif": _write_gif, "html": _write_html}[format_of(path)]
    target = Path(path)
    partial = target.with_name(f".partial-{target.name}")
    try:
        writer(partial, drawn(), frames_per_second, None if mesh is None else mesh.cmap)
        os.replace(partial, target)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _fixed_axes(request: HistogramArguments, epochs: Sequence[int], count: Count) -> list[Axis]:
    """Returns the axes of all frames: with the range of the rows of all epochs, unless one is stated."""
    stated = request["axes"]
    has_ends = [span is not None or isinstance(bins, list) for _, bins, span, _ in stated]
    if all(has_ends):
        return stated
    in_one = [axis if known else (axis[0], 1, None, axis[3]) for axis, known in zip(stated, has_ends, strict=True)]
    whole = count({**request, "axes": in_one}, epochs)
    found = (whole.x, whole.y or whole.x)
    return [
        axis if known else (axis[0], axis[1], _range(of), axis[3])
        for axis, known, of in zip(stated, has_ends, found, strict=True)
    ]


def _range(axis: HistogramAxis) -> tuple[float, float] | None:
    if not len(axis.edges):
        return None
    low, high = axis.edges[0].item(), axis.edges[-1].item()
    if low < high or isinstance(low, int):
        return low, high
    # One value: bins as wide as a picture has them.
    edges = drawn_edges(axis.edges, axis.log)
    return float(edges[0]), float(edges[-1])


def _write_gif(path: Path, frames: Iterator[Any], frames_per_second: float, cmap: Any) -> None:
    """Writes a GIF, with one palette: the same value has the same colour in each frame."""
    image = needed("PIL.Image", "pictures", "a GIF")
    colors = numpy.zeros((0, 3)) if cmap is None else cmap(numpy.linspace(0, 1, 256 - _GREYS))[:, :3]
    greys = numpy.repeat(numpy.linspace(0, 1, _GREYS), 3).reshape(-1, 3)
    table = image.new("P", (1, 1))
    table.putpalette((255 * numpy.concatenate([greys, colors])).round().astype("u1").tobytes())
    pictures = (
        image.fromarray(numpy.asarray(figure.canvas.buffer_rgba())[..., :3].copy()).quantize(palette=table, dither=0)
        for figure in frames
    )
    duration = round(1000 / frames_per_second)
    # Pillow would leave a file open if a frame fails.
    with path.open("wb") as file:
        next(pictures).save(file, format="GIF", save_all=True, append_images=pictures, duration=duration, loop=0)


def _write_html(path: Path, frames: Iterator[Any], frames_per_second: float, cmap: Any) -> None:
    """Writes a page with the frames and the controls of matplotlib's player."""
    writer = module("animation").HTMLWriter(fps=frames_per_second, embed_frames=True, embed_limit=float("inf"))
    first = next(frames)
    with writer.saving(first, path, _DPI):
        writer.grab_frame()
        for _ in frames:
            writer.grab_frame()
