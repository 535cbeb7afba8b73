"""Charts and pictures by themselves."""

import base64
import io
import re

import numpy as np
import pytest

from unbag.reporting.charts import Line, Point, agreement_chart, interval_bar, legend, line_chart
from unbag.reporting.heat import heat_picture, png


def places(chart):
    result = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', chart)
    return [(float(x), float(y)) for x, y in result]


def test_lines_with_gaps_and_one_epoch():
    one = line_chart([1], [Line("risk", [0.5], "a")], label="Risk")
    assert "epoch 1\nrisk: 0.5" in one
    gaps = line_chart([1, 2, 3, 4], [Line("risk", [1.0, None, 2.0, 3.0], "a")], label="Risk")
    drawn = re.search(r'<path class="line a" d="(M[^"]*)"/><rect', gaps).group(1)
    assert drawn.count("M") == 2
    assert "risk: –" in gaps


def test_a_band_has_the_gaps_of_its_line():
    line = Line("error", [0.5, None, 0.4, 0.3], "a", [0.4, None, 0.3, 0.2], [0.6, None, 0.5, 0.4])
    line.band = "interval"
    chart = line_chart([1, 2, 3, 4], [line], label="Error")
    bands = re.findall(r'<polygon class="band a" points="([^"]*)"', chart)
    assert [len(corners.split()) // 2 for corners in bands] == [2, 4]


def test_many_epochs_are_thinned_but_end_with_the_last():
    epochs = list(range(1, 5001))
    chart = line_chart(epochs, [Line("risk", [1 / e for e in epochs], "a")], label="Risk")
    assert chart.count("data-tip") == 200
    assert "epoch 5000\n" in chart
    assert len(chart) < 60_000


def test_every_mark_has_a_legend():
    line = Line("error", [0.5, 0.4], "a", [0.4, 0.3], [0.6, 0.5], "its interval")
    chart = line_chart([1, 2], [line], label="Error", shares=True, mark=(2, "kept epoch"))
    keys = re.findall(r'<span class="key">.*?</svg>(.*?)</span>', chart)
    assert keys == ["error", "its interval", "kept epoch"]
    assert "epoch 2\nerror: 40.0%\nits interval: 30.0% to 50.0%\nkept epoch" in chart


def test_dots_lie_on_the_chart():
    points = [Point(0.0, 1.0, ["a"]), Point(1.0, 0.0, ["b"])]
    (x0, y1), (x1, y0) = places(agreement_chart(points, "label", "x", "y"))
    assert 0 < x0 < x1 < 420
    assert 0 < y1 < y0 < 420


def test_a_dot_beyond_the_chart_is_hollow_at_its_edge():
    points = [Point(0.5, 1.0, []), Point(0.5, 1.3, [], low=1.1, high=1.5), Point(0.5, -0.2, [])]
    chart = agreement_chart(points, "label", "x", "y")
    (_, top), (_, above), (_, below) = places(chart)
    assert above == top
    assert below == places(agreement_chart([Point(0.5, 0.0, [])], "label", "x", "y"))[0][1]
    assert chart.count("beyond") == 2


def test_bars_end_at_0_and_100_percent():
    assert places(interval_bar(1.3, 1.1, 1.5, [])) == places(interval_bar(1.0, 1.0, 1.0, []))
    assert "reach" not in interval_bar(0.5, None, None, [])


def test_all_texts_are_escaped():
    attack = '"><script>alert(1)</script>'
    lines = [Line(attack, [0.5], "a", [0.4], [0.6], attack)]
    point = Point(0.5, 0.5, [attack])
    picture = heat_picture(
        np.eye(1), [attack], [attack], [(attack, np.eye(1))], kinds=(attack, attack), label=attack
    )
    for drawn in (
        line_chart([1], lines, label=attack, mark=(1, attack)),
        agreement_chart([point], attack, "x", "y"),
        interval_bar(0.5, 0.4, 0.6, [attack]),
        legend(dot=attack),
        picture,
    ):
        assert "<script>" not in drawn
        assert "alert(1)" in drawn


def test_picture_is_a_valid_png():
    pillow = pytest.importorskip("PIL.Image")
    values = np.array([[0.0, 0.5, 1.0], [1.0, np.nan, 2.0]])
    data = base64.b64decode(png(values).partition(",")[2])
    image = np.asarray(pillow.open(io.BytesIO(data)).convert("RGBA"))
    np.testing.assert_array_equal(image[:, :, 3], [[0, 128, 255], [255, 0, 255]])


def test_cells_of_a_picture_are_inside_0_to_100_percent():
    values = np.array([[1.2, -0.1, np.nan, 0.1234]])
    picture = heat_picture(
        values, ["r"], list("abcd"), [("share", values)], kinds=("row", "column"), label="l"
    )
    assert '"values":[[1000,0,null,123]]' in picture
