"""The page that `report` writes: whole by itself, well-formed, and its marks are the metrics of `stats`.

The page is XML, so it is read with a parser of it; values come from the marks' coordinates and the plots' axes.
"""

import math
import re
import shutil
from xml.etree import ElementTree

import numpy
import pytest

from support import raw
from support.command import FAILED, USAGE, answer, turbidite

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


class Plot:
    """A plot and the way from its coordinates back to values."""

    def __init__(self, page: ElementTree.Element, name: str):
        found = [svg for svg in page.iter(f"{SVG}svg") if svg.get("data-plot") == name]
        assert len(found) == 1, name
        self.svg = found[0]
        self.left, self.right, self.top, self.bottom = (float(self.svg.get(f"data-{side}")) for side in ("left", "right", "top", "bottom"))

    def value(self, axis: str, share: float) -> float:
        kind, low, high = self.svg.get(f"data-{axis}").split()
        low, high = float(low), float(high)
        return low * (high / low) ** share if kind == "log" else low + (high - low) * share

    def x(self, coordinate: float) -> float:
        return self.value("x", (coordinate - self.left) / (self.right - self.left))

    def y(self, coordinate: float) -> float:
        return self.value("y", (self.bottom - coordinate) / (self.bottom - self.top))

    def y_pixel(self) -> float:
        """What a tenth of a pixel is worth, which coordinates are rounded to."""
        return abs(self.y(self.bottom - 0.11) - self.y(self.bottom))

    def marks(self, **attributes) -> list[ElementTree.Element]:
        wanted = {name.replace("_", "-"): str(value) for name, value in attributes.items()}
        return [mark for mark in self.svg.iter() if all(mark.get(name) == value for name, value in wanted.items())]


def points(mark: ElementTree.Element) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([^MLVh]+)", mark.get("d"))]


def report(path, target, *more) -> ElementTree.Element:
    turbidite("report", path, "-o", target, *more)
    text = target.read_text()
    assert text.startswith("<!DOCTYPE html>")
    page = ElementTree.fromstring(text)
    check_alone(page, text)
    return page


def check_alone(page: ElementTree.Element, text: str) -> None:
    """Nothing is fetched, nothing runs but the page's own script, and no number is broken."""
    scripts = list(page.iter(f"{HTML}script"))
    assert len(scripts) == 1 and not scripts[0].attrib
    styles = "".join(style.text for style in page.iter(f"{HTML}style"))
    assert "url(" not in styles and "@import" not in styles
    for element in page.iter():
        assert element.tag.split("}")[1] not in ("link", "img", "image", "iframe", "object", "use", "a")
        for name, value in element.attrib.items():
            assert name not in ("src", "href", "srcset") and not name.startswith("on"), (element.tag, name)
            if not name.startswith("data-tip") and name in ("d", "x", "y", "width", "height", "cx", "cy", "viewBox"):
                assert "NaN" not in value and "inf" not in value, (element.tag, name, value)
    for mark in page.iter(f"{SVG}rect"):
        assert float(mark.get("height")) >= 0 and float(mark.get("width")) > 0, mark.attrib
    shown = re.sub(r"data-tip=\"[^\"]*\"", "", text)
    assert "Infinity" not in shown


def test_marks_are_the_metrics_of_stats(indexed, tmp_path):
    page = report(indexed.path, tmp_path / "report.html")
    stats = answer("stats", indexed.path)
    share, groups, stages, stored = (Plot(page, name) for name in ("share", "row-groups", "stages", "stored"))
    amplification, loads = Plot(page, "amplification"), Plot(page, "loads")
    for epoch in stats:
        label = epoch["epoch"]
        for plot, figure, factor in [(share, "share", 100), (groups, "runs", 1)]:
            [line] = plot.marks(data_epoch=label)
            steps = points(line)
            levels = [(plot.x((begin[0] + end[0]) / 2), plot.y(begin[1])) for begin, end in zip(steps[::2], steps[1::2])]
            for point in epoch["profile"]["points"]:
                percentile, level = min(levels, key=lambda one: abs(one[0] - point["percentile"]))
                assert percentile == pytest.approx(point["percentile"], abs=0.05)
                assert level == pytest.approx(factor * point[figure], abs=plot.y_pixel()), point
        unit = 1e3 if "ms" in "".join(stages.svg.itertext()) else 1
        for name in ("route", "sort", "encode", "write", "sync"):
            [bar] = stages.marks(data_epoch=label, data_series=name)
            assert float(bar.get("height")) * stages.y_pixel() / 0.11 / unit == pytest.approx(
                epoch["metrics"][f"{name}_s"], abs=stages.y_pixel() / unit
            )
        written = sum(float(bar.get("height")) for bar in stored.marks(data_epoch=label))
        factor = {"kB": 1e3, "MB": 1e6, "GB": 1e9}[next(text.text for text in stored.svg.iter(f"{SVG}text") if text.get("class") == "title")]
        assert written * stored.y_pixel() / 0.11 * factor == pytest.approx(epoch["metrics"]["bytes_written"], abs=stored.y_pixel() * factor)
        tail, middle = (float(circle.get("cy")) for circle in amplification.marks(data_epoch=label))
        assert amplification.y(tail) == pytest.approx(epoch["profile"]["read_amplification_p99"], abs=amplification.y_pixel())
        assert amplification.y(middle) == pytest.approx(epoch["profile"]["read_amplification_p50"], abs=amplification.y_pixel())
        [column] = loads.marks(data_epoch=label)
        assert float(column.get("data-imbalance")) == pytest.approx(epoch["load_imbalance"])
        assert float(column.get("data-most")) == pytest.approx(epoch["largest_load"])
    # Each receiver of each epoch is a dot, all in one list of epochs and their receivers in order.
    dots = [mark.get("d") for mark in loads.marks(**{"class": "dots"})]
    for drawn, epoch in zip(dots, stats, strict=True):
        rows = numpy.array(epoch["metrics"]["rows_per_receiver"], float)
        heights = [loads.y(float(y)) for y in re.findall(r"M\S+ (\S+)h0", drawn)]
        assert heights == pytest.approx(100 * rows / rows.mean(), abs=loads.y_pixel())


def test_ridges_are_the_distribution(default_dataset, tmp_path):
    """The area of a ridge is one, whatever its scale, and its centre is near that of the data."""
    page = report(default_dataset.path, tmp_path / "report.html")
    plot = Plot(page, "distribution")
    assert plot.svg.get("data-x").startswith("log")
    areas = {}
    for epoch, records in default_dataset.epochs.items():
        [ridge] = plot.marks(data_epoch=epoch)
        outline = points(ridge)
        base = outline[0][1]
        bins = [(one[0], two[0], base - one[1]) for one, two in zip(outline[1:-1:2], outline[2:-1:2])]
        areas[epoch] = sum((right - left) * height for left, right, height in bins)
        centre = sum((left + right) / 2 * (right - left) * height for left, right, height in bins) / areas[epoch]
        energy = records["energy"]
        assert math.log(plot.x(centre)) == pytest.approx(numpy.log(energy[energy > 0]).mean(), abs=0.25)
    assert max(areas.values()) < 1.05 * min(areas.values())


def test_hostile_names_stay_text(scratch, tmp_path):
    hostile = "</script><script>alert('1')</script>\"&\x07"
    root, target = scratch / "<b onclick=alert(2)>", scratch / "hostile <i>"
    rows = numpy.zeros(2000, [("key", "<f8"), ("other", "<f4")])
    rows["key"] = numpy.random.default_rng(3).normal(size=2000)
    rows["key"][:50], rows["key"][50:90] = numpy.nan, numpy.inf
    layout = raw.write_source(root, {1: numpy.array_split(rows, 4)})
    name = "</script><script>alert('1')</script>\\\"&\\u0007"
    layout.write_text(layout.read_text().replace('name = "key"', f'name = "{name}"\nunit = "]]><svg onload=alert(3)>"'))
    turbidite("ingest", root, "--layout", layout, "--out", target, "--key", hostile)
    page = report(target, tmp_path / "report.html")
    cells = [cell.text for cell in page.iter(f"{HTML}td")]
    assert hostile.replace("\x07", "\ufffd") in cells and "]]><svg onload=alert(3)>" in cells
    assert page.find(f".//{HTML}h1").text == "hostile <i>"


def test_pages_stay_small_and_say_what_they_leave_out(scratch, tmp_path):
    """Many epochs, many receivers, an epoch without rows, integers, a single epoch."""
    random = numpy.random.default_rng(5)

    def rows(keys):
        return numpy.array(list(zip(keys)), dtype=[("key", keys.dtype.str)])

    def build(name, epochs, *more):
        root, target = scratch / f"{name}-source", scratch / name
        raw.write_source(root, epochs)
        turbidite(*raw.ingest_arguments(root, target, "key", *more))
        shutil.rmtree(root)
        return target

    integers = {e: [rows(random.integers(0, 10, 40 if e else 0).astype("i4"))] for e in range(130)}
    page = report(build("many", integers), tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < 500_000
    table = page.find(f".//{HTML}table[@id='epochs']/{HTML}tbody")
    assert len(table) == 24 and table[0][0].text == "0" and table[-1][0].text == "129"
    assert "24 of 130 epochs" in "".join(page.itertext())
    parts = build("receivers", {7: [rows(random.lognormal(size=20_000).astype("f4"))]}, "--ranks", 300, "--receivers", 300)
    report(parts, tmp_path / "parts.html")
    assert (tmp_path / "parts.html").stat().st_size < 150_000
    report(build("nothing", {0: [rows(numpy.empty(0, "f4"))]}), tmp_path / "nothing.html")
    for name in ("many", "receivers", "nothing"):
        shutil.rmtree(scratch / name)


def test_where_it_is_written(default_dataset, tmp_path):
    told = answer("report", default_dataset.path, "-o", tmp_path / "one.html", "--epoch", max(default_dataset.epochs))
    assert told["epochs"] == 1 and told["bytes"] == (tmp_path / "one.html").stat().st_size
    turbidite("report", default_dataset.path, "-o", tmp_path, expect=USAGE)
    turbidite("report", default_dataset.path, "-o", tmp_path / "missing" / "page.html", expect=FAILED)
    turbidite("report", default_dataset.path, "--epoch", 3, "-o", tmp_path / "none.html", expect=FAILED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.html"]
