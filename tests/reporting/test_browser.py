"""The page of a real run in a headless browser; where there is none, these tests are skipped."""

import os
import re
import shutil

import pytest
from small_run import ATTACK, HOSTILE_BAGS, HOSTILE_CLASSES

from unbag.reporting import build_report, render_html
from unbag.reporting.sections import SECTIONS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def absent(reason):
    """Skip, or fail where a browser is required."""
    if os.environ.get("UNBAG_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed")
    result = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if result is None:
        absent(f"none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=result, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory, run, hostile_run, many_run):
    """Pages of the runs, as files."""
    folder = tmp_path_factory.mktemp("reports")
    contents = {
        "run": run.content(),
        "hostile": hostile_run.content(**ATTACK | {"title": HOSTILE_BAGS[0]}),
        "many": many_run.content(),
        "bare": {"clf": run.clf, "evaluation": None, "inspection": None},
    }
    addresses = {}
    for name, content in contents.items():
        file = folder / f"{name}.html"
        file.write_text(render_html(build_report(**content)), encoding="utf-8")
        addresses[name] = file.as_uri()
    return addresses


class Visit:
    """A page that is open, and all that happened on it."""

    def __init__(self, browser, address, wide=1280, **options):
        self.context = browser.new_context(viewport={"width": wide, "height": 800}, **options)
        self.page = self.context.new_page()
        self.messages, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.address = address
        self.page.goto(address)

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def check_quiet(self):
        """Nothing was said, asked or requested."""
        assert self.messages == []
        assert self.dialogs == []
        outside = [u for u in self.requests if u != self.address and not u.startswith("data:")]
        assert outside == []

    @property
    def tip(self):
        """The text shown on hover, None while it is hidden."""
        tip = self.page.locator("#tip")
        return tip.text_content() if tip.is_visible() else None


@pytest.fixture
def visit(browser, addresses):
    """Open a page; it must have been quiet at the end."""
    opened = []

    def open_page(name, **options):
        opened.append(Visit(browser, addresses[name], **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.check_quiet()
        one.context.close()


def test_every_section_is_shown(visit):
    page = visit("run").page
    for section in SECTIONS:
        heading = page.locator(f"section#{section.key} > h2")
        assert heading.text_content() == section.title
        assert heading.is_visible()


@pytest.mark.parametrize("name", ["run", "hostile", "many", "bare"])
@pytest.mark.parametrize("wide", [375, 1280])
def test_no_sideways_scrolling(visit, name, wide):
    page = visit(name, wide=wide).page
    page.evaluate("document.querySelectorAll('details').forEach((e) => (e.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    page.evaluate("window.scrollTo(500, 0)")
    assert page.evaluate("window.scrollX") == 0


@pytest.mark.parametrize("wide", [375, 1280])
def test_tables_that_scroll_say_so(visit, wide):
    page = visit("run", wide=wide).page
    page.evaluate("document.querySelectorAll('details').forEach((e) => (e.open = true))")
    page.wait_for_timeout(50)  # "toggle" comes later
    boxes = page.locator(".scroll").all()
    scrolls = [box.evaluate("(e) => e.scrollWidth > e.clientWidth + 1") for box in boxes]
    hints = [hint.is_visible() for hint in page.locator(".hint").all()]
    assert hints == scrolls
    assert any(scrolls) == (wide == 375)


def test_charts_react_to_the_pointer(visit, run):
    one = visit("run")
    assert one.tip is None
    strips = one.page.locator("#training svg.chart").first.locator(".hit")
    strips.nth(2).hover()
    first = one.tip
    assert "epoch 3" in first
    strips.nth(5).hover()
    assert "epoch 6" in one.tip != first
    one.page.locator("#bag_shares circle.pt").first.hover()
    assert "bag \u2068north\u2069" in one.tip
    assert "known" in one.tip
    one.page.locator("#confusion td.pt").nth(1).hover()
    assert "estimate" in one.tip
    assert "95% interval" in one.tip
    one.page.locator("#confusion tbody .bar .hit").first.hover()
    assert f"recall of \u2068setosa\u2069: {100 * min(run.evaluation.recall[0], 1):.1f}" in one.tip
    one.page.locator("h1").hover()
    assert one.tip is None


def test_charts_react_to_the_keyboard(visit):
    one = visit("run")
    one.page.locator("#training svg.chart").first.focus()
    one.page.keyboard.press("ArrowRight")
    assert "epoch 1\n" in one.tip
    one.page.keyboard.press("ArrowRight")
    assert "epoch 2\n" in one.tip
    one.page.keyboard.press("Escape")
    assert one.tip is None
    one.page.locator("#confusion .chart").focus()
    one.page.keyboard.press("ArrowRight")
    one.page.keyboard.press("ArrowDown")
    assert one.tip.startswith("true \u2068versicolor\u2069\npredicted \u2068setosa\u2069")


def test_charts_react_to_a_touch(visit):
    one = visit("run", wide=375, has_touch=True)
    one.page.locator("#bag_shares circle.pt").first.tap()
    assert "bag" in one.tip


def test_pictures_of_many_cells_tell_the_cell(visit, many_run):
    one = visit("many")
    grid = one.page.locator("#priors .grid")
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    one.page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 2)
    first = one.tip
    assert "class \u2068class 0\u2069" in first
    named = re.search("bag \u2068(.*)\u2069", first).group(1)
    share = many_run.priors.values[list(many_run.priors.bag_ids).index(named), 0]
    assert f"share: {100 * share:.1f}%" in first
    one.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 2)
    assert "class \u2068class 2\u2069" in one.tip != first
    grid.focus()
    one.page.keyboard.press("Home")
    largest = many_run.priors.values[many_run.priors.values.argmax(1) == 0, 0].max()
    assert f"share: {100 * largest:.1f}%" in one.tip
    density = one.page.locator("#bag_shares .grid")
    density.hover()
    assert "pairs of bag and class" in one.tip


def test_hostile_names_are_shown_as_text(visit):
    one = visit("hostile")
    shown = one.page.evaluate("document.body.innerText")
    for name in (HOSTILE_BAGS[0], HOSTILE_BAGS[1], HOSTILE_BAGS[5], *HOSTILE_CLASSES):
        assert name in shown
    assert one.page.locator("h1").inner_text() == HOSTILE_BAGS[0]
    assert one.page.locator("script").count() == 1
    assert one.page.locator("img, iframe, object, embed, form, i").count() == 0
    assert one.page.locator("b", has_text="bold").count() == 0
    one.page.locator("#priors tbody th .cut", has_text="long").hover()
    assert one.tip == HOSTILE_BAGS[3]
    for cell in one.page.locator("#priors td.pt").all()[::3]:
        cell.hover()
        assert one.tip.startswith("bag ")
        assert one.page.locator("#tip > *").count() == 0


def test_text_and_charts_without_javascript(visit):
    one = visit("run", java_script_enabled=False)
    assert one.page.locator("#training svg.chart path.line").count() >= 3
    assert one.page.locator("#headline .big").first.inner_text().endswith("%")
    assert one.page.locator("#priors td.pt").count() == 21


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(visit, scheme):
    one = visit("run", color_scheme=scheme)
    contrasts = one.page.evaluate(
        """() => {
            const parse = (c) => c.match(/[\\d.]+/g).map(Number);
            const line = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
            const light = ([r, g, b]) => 0.2126 * line(r) + 0.7152 * line(g) + 0.0722 * line(b);
            const ground = (e) => {
                if (!e) return [255, 255, 255];
                const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
                if (a === 1) return [r, g, b];
                const under = ground(e.parentElement);
                return [r, g, b].map((v, i) => a * v + (1 - a) * under[i]);
            };
            const found = [];
            for (const e of document.querySelectorAll("p, td, th, dt, dd, li, a, h1, h2, h3, b")) {
                if (!e.checkVisibility() || !e.textContent.trim()) continue;
                const [x, y] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
                found.push((Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05));
            }
            return found;
        }"""
    )
    assert len(contrasts) > 100
    assert min(contrasts) >= 4.5


def test_printing_cuts_nothing(visit):
    one = visit("run")
    one.page.emulate_media(media="print")
    one.page.set_viewport_size({"width": 690, "height": 900})  # A4 less its margins
    cut = one.page.evaluate(
        """() => [...document.querySelectorAll(".scroll, svg, pre, section")].filter((e) =>
            e.getBoundingClientRect().right > 691 || e.scrollWidth > e.clientWidth + 1 &&
            e.tagName !== "svg").map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    assert len(one.page.pdf()) > 10_000
