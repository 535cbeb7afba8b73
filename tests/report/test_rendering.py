"""The page of a report, without a browser."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from small_run import HOSTILE_BAGS, HOSTILE_CLASSES

import unbag
from unbag.report import build_report, render_html
from unbag.report.charts import Line, line_chart, nice_limit, scatter
from unbag.report.heat import png

SECTIONS = (
    "headline",
    "inspection",
    "priors",
    "training",
    "confusion",
    "shares",
    "calibration",
    "hyperparameters",
    "data",
    "citation",
)
VOID = {"meta", "link", "img", "br", "col"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains of tags that do not match."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.open, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="module")
def page(run):
    return render_html(build_report(**run.content(title="Iris by region")))


def test_every_section_is_there(page):
    parsed = Page(page)
    ids = [value for tag, key, value in parsed.attributes if tag == "section" and key == "id"]
    assert tuple(ids) == SECTIONS
    for words in ("Iris by region", "2026-01-02 03:04 UTC", "rows.parquet", "Partial Risk"):
        assert words in parsed.text


def test_the_page_needs_nothing_else(page):
    parsed = Page(page)
    for tag, key, value in parsed.attributes:
        if key in ("src", "href", "action", "srcset", "poster"):
            assert value.startswith(("data:", "#")), (tag, key, value)
        assert not key.startswith("on"), (tag, key)
        assert key != "style"  # the policy would not let it
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org)", page)


def test_policy_allows_the_own_script_and_style_only(page):
    policy = re.search(r'Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, tag in (("style", "style"), ("script", "script")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_json_brings_back_the_same_page(run):
    report = build_report(**run.content())
    assert render_html(json.loads(json.dumps(report))) == render_html(report)


def test_hostile_names_are_text(hostile_run, run):
    data = {
        "files": HOSTILE_BAGS,
        "features": HOSTILE_BAGS,
        "left_out": dict.fromkeys(HOSTILE_BAGS, HOSTILE_BAGS[0]),
        "encoding": HOSTILE_BAGS,
        "notes": HOSTILE_BAGS,
    }
    content = hostile_run.content(title=HOSTILE_BAGS[2], warnings=HOSTILE_BAGS, data=data)
    hostile = Page(render_html(build_report(**content)))
    plain = Page(render_html(build_report(**run.content(warnings=["x"]))))
    assert set(hostile.tags) == set(plain.tags)
    assert hostile.tags.count("script") == 2
    assert "img" not in hostile.tags
    assert {key for _, key, _ in hostile.attributes} == {key for _, key, _ in plain.attributes}
    for name in (*HOSTILE_BAGS[:3], *HOSTILE_BAGS[4:], *HOSTILE_CLASSES):
        assert name in hostile.text
    assert HOSTILE_BAGS[3] in [v for _, key, v in hostile.attributes if key == "data-tip"]


def test_hostile_names_in_the_embedded_json(many_run):
    report = build_report(**many_run.content())
    report["priors"]["bags"][0] = "</script><!--<script>alert(1)</script>"
    page = render_html(report)
    embedded = re.search(r'id="grids">(.*?)</script>', page, re.DOTALL).group(1)
    names = json.loads(embedded)["priors"]["rows"]
    assert any("</script><!--<script>alert(1)" in name for name in names)
    assert Page(page).tags.count("script") == 2


def test_numbers_on_the_page(run, page):
    parsed = Page(page)
    value = run.evaluation.accuracy
    assert f"{100 * value:.1f}\xa0%" in parsed.text
    assert run.inspection.verdict in parsed.text
    half = (run.watched.error.high - run.watched.error.low) / 2
    assert f"The band is ± {100 * half:.1f} points" in parsed.text
    tips = [v for _, key, v in parsed.attributes if key == "data-tip"]
    raw = run.evaluation.confusion[0, 0]
    assert any(f"raw estimate {100 * raw:.1f}\xa0%" in tip for tip in tips)
    dots = [v for tag, key, v in parsed.attributes if tag == "circle" and key == "data-tip"]
    assert sum("known" in tip and "predicted" in tip for tip in dots) == 15


def test_missing_parts_say_why(run):
    text = Page(render_html(build_report(run.clf, None, None))).text
    assert text.count("The classifier was not evaluated on held-out rows.") == 2
    assert "Bags and priors were not inspected." in text
    assert "There are no predictions of held-out rows." in text
    assert "Probabilities of held-out rows were not given." in text


@pytest.mark.parametrize(("m", "k"), [(2, 2), (40, 20), (1000, 10), (1000, 100)])
def test_few_and_many_bags_and_classes(m, k):
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(k, 0.3), m)
    theta[: min(m, k)] = 0.5 * theta[: min(m, k)] + 0.5 * np.eye(k)[: min(m, k)]
    priors = unbag.ClassPriors(
        theta, [f"municipality {i}" for i in range(m)], [f"class {i}" for i in range(k)]
    )
    bag = priors.bag_ids[np.repeat(np.arange(m), 20)]
    predicted = priors.classes[rng.integers(0, k, 20 * m)]
    evaluation = unbag.evaluate_predictions(predicted, bag, priors=priors)
    clf = unbag.UnbagClassifier(priors=priors)
    clf.classes_, clf.history_, clf.calibration_ = priors.classes, {}, None
    clf.method_ = "crossfit"
    report = build_report(clf, evaluation, None, bag_ids=bag, predicted=predicted)
    page = render_html(report)
    assert len(page.encode()) < 1_000_000
    cells = page.count('<td class="pt h')
    small = m <= 40 and k <= 20
    assert cells == (m * k if small else 0) + (k * k if k <= 20 else 0)
    assert page.count('data-grid="priors"') == (not small)
    Page(page)


def test_stop_and_care_are_told(run):
    poor = unbag.inspect({"a": [0.6, 0.2, 0.2], "b": [0.2, 0.4, 0.4], "c": [0.4, 0.3, 0.3]})
    page = render_html(build_report(run.clf, None, poor))
    assert 'class="banner stop"' in page
    assert "cannot be told apart" in Page(page).text


@pytest.mark.parametrize("change", [{"version": 2}, {"format": "other"}])
def test_another_format_is_refused(run, change):
    report = build_report(**run.content()) | change
    with pytest.raises(unbag.exceptions.InvalidInputError, match="report must be of format"):
        render_html(report)


def test_lines_with_gaps_and_one_epoch():
    one = line_chart([1], [Line("risk", [0.5], "a")], label="Risk")
    assert "epoch 1\nrisk: 0.5" in one
    gaps = line_chart([1, 2, 3, 4], [Line("risk", [1.0, None, 2.0, 3.0], "a")], label="Risk")
    drawn = re.search(r'<path class="line a" d="(M[^"]*)"/><rect', gaps).group(1)
    assert drawn.count("M") == 2
    assert "risk: –" in gaps
    none = line_chart([1], [Line("risk", [None], "a")], label="Risk")
    assert "no finite numbers" in none


def test_many_epochs_are_thinned_but_end_with_the_last():
    epochs = list(range(1, 5001))
    chart = line_chart(epochs, [Line("risk", [1 / e for e in epochs], "a")], label="Risk")
    assert chart.count("data-tip") == 200
    assert "epoch 5000\n" in chart
    assert len(chart) < 60_000


def test_dots_lie_on_the_chart():
    chart = scatter([(0.0, 1.0, ["a"]), (1.0, 0.0, ["b"])], "label", "x", "y")
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', chart)
    (x0, y1), (x1, y0) = [(float(a), float(b)) for a, b in places]
    assert 0 < x0 < x1 < 420
    assert 0 < y1 < y0 < 420
    assert nice_limit(0.0) == 0.05


def test_picture_is_a_valid_png():
    pillow = pytest.importorskip("PIL.Image")
    values = np.array([[0.0, 0.5, 1.0], [1.0, np.nan, 2.0]])
    data = base64.b64decode(png(values).partition(",")[2])
    image = np.asarray(pillow.open(io.BytesIO(data)).convert("RGBA"))
    np.testing.assert_array_equal(image[:, :, 3], [[0, 128, 255], [255, 0, 255]])
