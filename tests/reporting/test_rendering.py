"""The page of a report, without a browser."""

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import jinja2
import pytest
from small_run import ATTACK, HOSTILE_BAGS, HOSTILE_CLASSES, draw

import unbag
from unbag.evaluation import Estimate
from unbag.exceptions import InvalidInputError
from unbag.reporting import build_report, building, render_html, rendering
from unbag.reporting.sections import SECTIONS, Section

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

    @property
    def sections(self):
        return [value for tag, key, value in self.attributes if tag == "section" and key == "id"]

    @property
    def tips(self):
        return [value for _, key, value in self.attributes if key == "data-tip"]


@pytest.fixture(scope="module")
def page(run):
    return render_html(build_report(**run.content(title="Iris by region")))


def test_every_section_is_there(page):
    parsed = Page(page)
    assert parsed.sections == [section.key for section in SECTIONS]
    for words in ("Iris by region", "2026-01-02 03:04 UTC", "rows.parquet", "Partial Risk"):
        assert words in parsed.text
    links = [value for tag, key, value in parsed.attributes if (tag, key) == ("a", "href")]
    assert links == [f"#{key}" for key in parsed.sections[1:]]


def test_a_section_of_which_nothing_is_known_is_left_out(run):
    report = build_report(run.clf, None, None)
    parsed = Page(render_html(report))
    assert parsed.sections == [s.key for s in SECTIONS if report[s.key] is not None]
    assert {"answers", "calibration", "priors", "training", "citation"} <= {*parsed.sections}
    assert not {"headline", "confusion", "drift", "bag_shares", "data"} & {*parsed.sections}
    assert "#confusion" not in [value for _, key, value in parsed.attributes if key == "href"]
    assert "Unknown: it was not evaluated on held-out rows." in parsed.text


def test_a_section_is_a_function_a_template_and_a_line(run, monkeypatch):
    extra = Section("extra", "Something else", lambda sources: {"n": len(sources.bags)})
    template = jinja2.DictLoader({"extra.html": "<p>There are {{ part.n }} bags.</p>"})
    environment = rendering._environment()
    environment.loader = jinja2.ChoiceLoader([template, environment.loader])
    monkeypatch.setattr(rendering, "_environment", lambda: environment)
    for module in (building, rendering):
        monkeypatch.setattr(module, "SECTIONS", (*SECTIONS, extra))
    parsed = Page(render_html(build_report(**run.content())))
    assert parsed.sections[-1] == "extra"
    assert "There are 7 bags." in parsed.text
    assert ("a", "href", "#extra") in parsed.attributes


def test_a_template_that_names_what_is_not_there_fails(run):
    report = build_report(**run.content())
    del report["headline"]["shares_of"]
    with pytest.raises(InvalidInputError, match=r"shares_of.*evaluate the model again") as caught:
        render_html(report)
    assert isinstance(caught.value.__cause__, jinja2.UndefinedError)


def test_a_report_from_before_rows_were_compared_is_rendered(run):
    report = build_report(**run.content())
    del report["drift"]["rows"], report["confusion"]["trusted"], report["groups"]
    parsed = Page(render_html(report))
    assert parsed.sections == [section.key for section in SECTIONS if section.key != "groups"]


def test_numbers_beside_an_impossible_accuracy_are_withheld(run):
    content = run.content()
    evaluation = content["evaluation"]
    shown = Page(render_html(build_report(**content)))
    content["evaluation"] = dataclasses.replace(evaluation, trustworthy=False)
    report = build_report(**content)
    withheld = Page(render_html(report))
    for number in (evaluation.macro_f1, evaluation.f1[0], evaluation.recall[0]):
        assert f"{number:.1%}" in shown.text
        assert f"{number:.1%}" not in withheld.text
    assert "not shown !" in withheld.text
    assert "The confusion matrix is not shown" in withheld.text
    assert "log-loss" in shown.text
    assert "log-loss" not in withheld.text
    assert report["confusion"]["f1"][0]["value"] == pytest.approx(float(evaluation.f1[0]), abs=1e-5)
    assert not report["confusion"]["f1"][0]["trusted"]


def test_f1_of_a_class_with_an_impossible_recall_is_withheld(run):
    content = run.content()
    recalls = [Estimate(1.42, 1.3, 1.5), *content["evaluation"].recall[1:]]
    content["evaluation"] = dataclasses.replace(content["evaluation"], recall=recalls)
    part = build_report(**content)["confusion"]
    assert [f1["trusted"] for f1 in part["f1"]] == [False, *[True] * (len(recalls) - 1)]


def test_the_page_needs_nothing_else(page):
    parsed = Page(page)
    for tag, key, value in parsed.attributes:
        if key in ("src", "href", "action", "srcset", "poster"):
            assert value.startswith(("data:", "#")), (tag, key, value)
        assert not key.startswith("on"), (tag, key)
        assert key != "style"  # the policy would not let it
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org)", page)


def test_policy_allows_the_script_and_style_of_the_page_only(page):
    policy = re.search(r'Security-Policy" content="([^"]+)"', page).group(1)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        content = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_json_brings_back_the_same_page(run):
    report = build_report(**run.content())
    assert render_html(json.loads(json.dumps(report))) == render_html(report)


def test_hostile_names_are_text(hostile_run, run):
    hostile = Page(render_html(build_report(**hostile_run.content(**ATTACK))))
    inspection = hostile_run.inspection
    plain = Page(render_html(build_report(**run.content(warnings=["x"], inspection=inspection))))
    assert set(hostile.tags) == set(plain.tags)
    assert hostile.tags.count("script") == 1
    assert "img" not in hostile.tags
    assert {key for _, key, _ in hostile.attributes} == {key for _, key, _ in plain.attributes}
    for name in (*HOSTILE_BAGS[:3], *HOSTILE_BAGS[4:], *HOSTILE_CLASSES):
        assert name in hostile.text
    assert HOSTILE_BAGS[3] in hostile.tips


def test_hostile_names_in_the_embedded_json(many_run):
    report = build_report(**many_run.content())
    report["priors"]["bags"][0] = "</script><!--<script>alert(1)</script>"
    page = render_html(report)
    embedded = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    names = json.loads(embedded[1])["rows"]  # the second picture, that of the known shares
    assert any("</script><!--<script>alert(1)" in name for name in names)
    assert Page(page).tags.count("script") == 1 + len(embedded) == 3


def test_numbers_on_the_page(run, page):
    parsed = Page(page)
    value = run.evaluation.accuracy
    assert f"right for about {100 * value:.1f}% of new rows" in parsed.text
    assert run.inspection.verdict in parsed.text
    for k, label in enumerate(run.priors.classes):
        recall = f"{100 * min(max(run.evaluation.recall[k], 0), 1):.1f}%"
        name = f"\u2068{label}\u2069"
        expected = f"true {name}\npredicted {name}\nestimate {recall}"
        assert any(tip.startswith(expected) for tip in parsed.tips)
        assert any(tip.startswith(f"recall of {name}: {recall}") for tip in parsed.tips)
    dots = [v for tag, key, v in parsed.attributes if tag == "circle" and key == "data-tip"]
    assert sum("known" in tip and "predicted" in tip for tip in dots) == 21


def test_differences_beyond_chance_are_marked(run):
    report = build_report(**run.content())
    report["bag_shares"]["beyond_chance"] = [[False] * 3 for _ in range(7)]
    assert 'class="pt dot far' not in render_html(report)
    report["bag_shares"]["beyond_chance"][2][1] = True
    (tip,) = re.findall(r'class="pt dot far"[^>]*data-tip="([^"]*)"', render_html(report))
    assert tip.startswith("bag \u2068east\u2069\nclass \u2068versicolor\u2069")


def test_cells_that_cannot_be_told_from_0_are_marked(run):
    report = build_report(**run.content())
    report["confusion"]["low"] = [[0.5, 0.0, 0.1], [0.2, 0.0, 0.1], [0.0, 0.3, 0.4]]
    cells = re.findall(r'<td class="(pt h[^"]*)"', render_html(report).split('id="bag_shares"')[0])
    assert [i for i, kind in enumerate(cells) if "faint" in kind] == [1, 6]
    assert [i for i, kind in enumerate(cells) if "diagonal" in kind] == [0, 4, 8]


def test_epochs_not_to_be_trusted_are_not_drawn(run):
    report = build_report(**run.content())
    part = report["training"]
    part["label_free_half_width"] = 0.04
    n = len(part["epoch"])
    part["label_free_error"] = [0.1] * (n - 3) + [-0.03, -0.05, 1.06]
    page = Page(render_html(report))
    assert f"In 2 of {n} epochs the estimate is outside" in page.text
    tips = [tip for tip in page.tips if "without labels" in tip]
    assert "error, estimated without labels: 0.0%\nits interval: 0.0% to 1.0%" in tips[-3]
    assert all("without labels: –" in tip for tip in tips[-2:])
    part["label_free_error"] = [-0.5] * n
    page = Page(render_html(report))
    assert f"In {n} of {n} epochs" in page.text
    assert not any("without labels" in tip for tip in page.tips)


def impossible(run):
    """A report with estimates that no classifier can have."""
    evaluation = run.evaluation
    content = run.content(evaluation=evaluation)
    object.__setattr__(evaluation, "trustworthy", False)
    object.__setattr__(evaluation, "accuracy", Estimate(1.067, 0.9875, 1.0))
    object.__setattr__(evaluation, "error", Estimate(-0.067, 0.0, 0.0125))
    object.__setattr__(evaluation, "balanced_accuracy", Estimate(1.01, 0.9, 1.0))
    evaluation.recall[0] = Estimate(1.42, 0.99, 1.0)
    evaluation.precision[1] = Estimate(-0.3, 0.0, 0.02)
    evaluation.confusion[0] = [1.42, -0.4, -0.02]
    curve = evaluation.reliability.overall
    curve.frequency[curve.rows.argmax()] = 1.3
    return build_report(**content)


def test_no_share_on_the_page_is_outside_0_to_100_percent(run):
    report = impossible(run)
    report["calibration"]["trusted"] = True  # its chart has a share outside too
    code = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)
    page = Page(code.sub("", render_html(report)))
    shown = re.findall(r"([−-]?[\d.]+)%", "\n".join(page.texts + page.tips))
    assert len(shown) > 250
    assert [n for n in shown if not 0 <= float(n.replace("−", "-")) <= 100] == []
    assert report["headline"]["accuracy"]["value"] == 1.067  # the raw number is in the content


def test_an_estimate_not_to_be_trusted_is_marked_with_the_reason(run):
    page = Page(render_html(impossible(run)))
    assert "about" not in page.text.split("Can I trust it?")[0].split("How good is it?")[1]
    assert "This cannot be said" in page.text
    assert page.text.count("above 100% !") == 3  # accuracy, balanced accuracy, recall
    assert page.text.count("below 0% !") == 2  # error, precision
    assert any("outside 0 to 100% by more than its error" in tip for tip in page.tips)
    bars = re.findall(r'<svg class="bar".*?</svg>', render_html(impossible(run)), re.DOTALL)
    assert len(bars) == 6
    assert not any("<circle" in bar for bar in bars)


def test_reliability_that_is_not_to_be_trusted_is_not_shown(run):
    report = impossible(run)
    assert report["calibration"]["reliability"]["overall"]["frequency"]  # kept in the content
    page = render_html(report)
    assert "How often predictions come true is not shown" in page
    assert "Reliability of" not in page
    del report["calibration"]["trusted"]  # as in earlier versions
    assert "Reliability of the predicted class" in render_html(report)


def test_an_estimate_outside_by_less_than_its_error_is_shown_as_the_limit(run):
    content = run.content()
    content["evaluation"] = dataclasses.replace(
        content["evaluation"], balanced_accuracy=Estimate(1.02, 0.9, 1.0)
    )
    assert "100.0%" in Page(render_html(build_report(**content))).text


@pytest.mark.parametrize(("m", "k"), [(2, 2), (40, 20), (700, 21)])
def test_few_and_many_bags_and_classes(run, m, k):
    other = draw(run, m, k)
    page = render_html(build_report(**other.content(data=None)))
    assert len(page.encode()) < 800_000
    cells = page.count('<td class="pt h')
    small = m <= 40 and k <= 20
    assert cells == (m * k if small else 0) + (k * k if k <= 20 else 0)
    assert page.count('class="grid chart"') == (not small)
    Page(page)


def test_stop_and_care_are_told(run):
    poor = unbag.inspect({"a": [0.6, 0.2, 0.2], "b": [0.2, 0.4, 0.4], "c": [0.4, 0.3, 0.3]})
    page = render_html(build_report(run.clf, None, poor))
    assert 'class="banner stop"' in page
    assert page.count('class="answer stop"') == 2
    assert "cannot be told apart" in Page(page).text


@pytest.mark.parametrize("change", [{"version": 1}, {"format": "other"}])
def test_another_format_is_refused(run, change):
    report = build_report(**run.content()) | change
    with pytest.raises(unbag.exceptions.InvalidInputError, match="report must be of format"):
        render_html(report)


def test_a_report_that_lacks_anything_is_rendered_or_refused_with_a_remedy(run):
    report = build_report(**run.content(title="Iris by region"))
    parts = {key: part for key, part in report.items() if isinstance(part, dict)}
    rest = {key: value for key, value in report.items() if key not in parts} | {
        key: parts.pop(key) for key in ("sizes", "versions")
    }
    others = [
        ((key, name), rest | {key: {n: v for n, v in part.items() if n != name}})
        for key, part in parts.items()
        for name in part
    ]
    others += [((key,), {k: v for k, v in rest.items() if k != key}) for key in rest]
    refused = {}
    for place, other in others:
        try:
            render_html(other)
        except InvalidInputError as error:
            refused[place] = str(error)
    assert len(others) > 60
    assert ("drift", "rows") not in refused  # reports of 0.2.0 had none
    assert ("confusion", "recall") in refused
    for place in (("format",), ("version",)):
        assert "build it with this version" in refused.pop(place)
    assert all("evaluate the model again with this version" in t for t in refused.values())
