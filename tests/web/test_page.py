"""The page in a real browser: every panel, a drawn query, uploads, the keyboard, narrow windows, exports."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("fastapi")
import torch

import likewise as lw
from likewise.web.collection import Collection
from likewise.web.explorer import Explorer
from tests.web.browsers import chromium, visit
from tests.web.problems import images, npy, vectors, waves

PANELS = ("look", "ask", "understand", "judge")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def collection():
    metrics = {"dtw": lw.DTW(band=0.2), "soft-dtw": lw.SoftDTW(gamma=0.1), "vectors": vectors(channels=1)}
    return Collection(waves(60, channels=1, longest=60), metrics, name="waves")


@pytest.fixture(scope="module")
def address(collection):
    with Explorer(collection) as page:
        yield page.url


def ready(page):
    page.wait_for_selector("main [data-ready], main[data-ready]")


def drag(page, selector, begin, end):
    """Drag over an element, between shares of its width and height."""
    box = page.locator(selector).first.bounding_box()
    x, y = (box["x"] + share * box["width"] for share in (begin[0], end[0])), (begin[1], end[1])
    x, y = list(x), [box["y"] + share * box["height"] for share in y]
    page.mouse.move(x[0], y[0])
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x[0] + (x[1] - x[0]) * step / 8, y[0] + (y[1] - y[0]) * step / 8)
    page.mouse.up()


def test_look_shows_a_map_that_can_be_brushed_and_coloured(browser, address):
    with visit(browser, address) as page:
        ready(page)
        assert "60 items" in page.locator("figcaption").first.inner_text()
        assert page.locator(".legend li").count() == 3
        drag(page, ".map canvas", (0.02, 0.02), (0.98, 0.98))
        page.wait_for_selector(".grid li")
        assert "60 items" in page.locator("main").inner_text()
        for by in ("prediction", "error", "length"):
            page.select_option("#colors", by)
            page.wait_for_selector(
                ".ramp" if by == "length" else f".legend >> text={'right' if by == 'error' else 'slow'}"
            )
        page.select_option("#metric", "vectors")
        page.wait_for_selector("figcaption >> text=PCA under vectors")


def test_ask_lists_neighbours_under_several_metrics(browser, address, collection):
    with visit(browser, address, panel="ask") as page:
        page.fill("#item", "7")
        page.keyboard.press("Tab")
        page.wait_for_selector("h3 >> text=Item 7")
        ready(page)
        assert page.locator(".columns section h2").all_inner_texts() == ["dtw", "soft-dtw"]
        D = collection.metrics["dtw"].matrix(collection.take([7]), collection.items)[0]
        D[7] = torch.inf
        first = page.locator(".hits button").first
        page.wait_for_function("document.querySelectorAll('.hits').length === 2")
        assert f"item {int(D.argmin())}," in first.get_attribute("aria-label")
        text = page.locator(".columns section").first.inner_text()
        assert "60 pairs" in text.replace("59 pairs", "60 pairs")
        assert "share the label" in text
        first.click()
        page.wait_for_selector("h2 >> text=x: 7")


def test_a_stretch_is_drawn_with_the_mouse_and_found_in_the_others(browser, address):
    with visit(browser, address, panel="ask") as page:
        ready(page)
        with page.expect_response("**/api/ask") as answer:
            drag(page, ".query svg", (0.3, 0.5), (0.7, 0.5))
        found = answer.value.json()
        assert found["stretch"]
        assert all(hit["end"] - hit["start"] < hit["length"] for hit in found["answers"][0]["hits"])
        page.wait_for_selector(".hits svg .match")
        begin, end = int(page.input_value("#start")), int(page.input_value("#end"))
        assert 5 < begin < end
        # The same by keyboard: the numbers of the steps.
        page.fill("#start", str(begin + 1))
        with page.expect_response("**/api/ask") as answer:
            page.keyboard.press("Tab")
        assert json.loads(answer.value.request.post_data)["query"]["start"] == begin + 1
        # The stretch itself is no match, and Understand shows the distance of the search.
        hits = answer.value.json()["answers"][0]["hits"]
        assert len(hits) == 10
        assert not any(hit["item"] == 0 and abs(hit["start"] - begin - 1) < (end - begin - 1) / 2 for hit in hits)
        ready(page)
        page.locator(".hits button").first.click()
        page.wait_for_selector(f"h2 >> text=x: 0 (slow), steps {begin + 1} to {end - 1}")
        shown = float(page.locator("main .bar b").inner_text())
        assert shown == pytest.approx(hits[0]["distance"], rel=1e-4)


def test_a_query_is_drawn_on_the_pad(browser, address):
    with visit(browser, address, panel="ask") as page:
        ready(page)
        page.check("input[value=draw]")
        with page.expect_response("**/api/ask") as answer:
            drag(page, "#pad", (0.05, 0.2), (0.95, 0.8))
        values = json.loads(answer.value.request.post_data)["query"]["values"]
        assert len(values) > 20
        assert values[0] > values[-1]
        page.wait_for_selector("h3 >> text=Drawn")


def test_an_upload_is_a_query(browser, address, collection):
    series = collection.items[4].numpy()
    csv = "value\n" + "\n".join(str(value) for value in series[:, 0].tolist())
    with visit(browser, address, panel="ask") as page:
        ready(page)
        page.check("input[value=upload]")
        for name, data in (("mine.csv", csv.encode()), ("mine.npy", npy(series))):
            with page.expect_response("**/api/ask") as answer:
                page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": data})
            hit = answer.value.json()["answers"][0]["hits"][0]
            assert hit["item"] == 4
            assert hit["distance"] == pytest.approx(0, abs=1e-4)
        page.wait_for_selector("h3 >> text=Uploaded")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("mine.csv", b"1\nx\n", "line 2 does not hold numbers"),
        ("mine.csv", b"1,2\n3,4\n", "expected 1 channels, got 2"),
        ("mine.npy", npy(np.array([{}], dtype=object)), "not a pickle"),
        ("mine.exe", b"MZ", "expected a .csv or .npy file"),
    ],
    ids=["words", "channels", "pickle", "program"],
)
def test_a_wrong_upload_is_refused_in_words(browser, address, name, data, said):
    with visit(browser, address, panel="ask") as page:
        ready(page)
        page.check("input[value=upload]")
        page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": data})
        page.wait_for_selector("[role=alert]")
        assert said in page.locator("[role=alert]").inner_text()
        page.problems[:] = [text for text in page.problems if "422" not in text]  # the browser notes the refusal


def understand(page, x, y):
    page.fill("#pair-x", str(x))
    page.fill("#pair-y", str(y))
    page.keyboard.press("Tab")
    ready(page)


def test_understand_shows_the_alignment_and_what_carries_the_distance(browser, address):
    with visit(browser, address, panel="understand") as page:
        understand(page, 3, 6)
        assert page.locator("svg .link").count() > 10
        assert page.locator("canvas.matrix").count() == 1
        text = page.locator("main").inner_text()
        assert re.search(r"Steps and channels add up to [\d.e+-]+; 0 ", text)
        curve = page.locator("figure:has(h3:text('From one')) path.line").last
        before = curve.get_attribute("d")
        page.fill("#morph", "50")
        assert curve.get_attribute("d") != before
        # A soft alignment has a plan.
        page.select_option("#metric", "soft-dtw")
        page.wait_for_selector("h3 >> text=Plan")
        # Vectors have neither, and still explain themselves.
        page.select_option("#metric", "vectors")
        page.wait_for_selector("h3 >> text=Both series")
        assert "integrated gradients" in page.locator("main").inner_text()


def test_judge_opens_its_cells_and_compares_metrics(browser, address):
    with visit(browser, address, panel="judge") as page:
        ready(page)
        assert page.locator(".score").count() == 3
        page.locator(".confusion button:enabled").first.click()
        page.wait_for_selector("#opened .grid li")
        page.select_option("#against", "vectors")
        page.wait_for_selector("h3 >> text=dtw against vectors")
        assert page.locator(".score").count() == 6
        text = page.locator("main").inner_text()
        for title in (
            "Worst queries",
            "Hardest negatives",
            "Suspected label errors",
            "Precision against recall",
            "both right",
        ):
            assert title in text
        page.locator("td button >> text=Understand").first.click()
        page.wait_for_selector("h3 >> text=Alignment")


def test_every_picture_and_table_can_be_saved(browser, address):
    starts = {"svg": b"<svg", "png": b"\x89PNG", "csv": b""}
    with visit(browser, address) as page:
        saved = set()
        for panel in PANELS:
            page.click(f"#tab-{panel}")
            if panel == "understand":
                understand(page, 0, 4)
            ready(page)
            if panel == "look":
                drag(page, ".map canvas", (0.02, 0.02), (0.98, 0.98))
                page.wait_for_selector(".grid li")
            if panel == "ask":
                page.click("summary")
            for button in page.locator("[data-export]").all():
                kind = button.get_attribute("data-export")
                with page.expect_download() as download:
                    button.click()
                content = download.value.path().read_bytes()
                assert content.startswith(starts[kind])
                assert len(content) > 40
                assert download.value.suggested_filename.endswith(f".{kind}")
                saved.add((panel, download.value.suggested_filename))
        names = {
            "look": {"map.svg", "map.png", "selection.csv"},
            "ask": {"query.svg", "query.png", "neighbours.csv"},
            "understand": {f"{name}.{kind}" for name in ("alignment", "from-one-to-the-other", "cost-and-path", "warp", "by-step-of-x") for kind in ("svg", "png")},
            "judge": {"scores-of-dtw.csv", "confusion.csv", "precision-against-recall.svg", "precision-against-recall.png", "worst-queries.csv", "hardest-negatives.csv"},
        }  # fmt: skip
        assert {(panel, name) for panel, some in names.items() for name in some} <= saved


def test_the_keyboard_reaches_everything(browser, address):
    with visit(browser, address) as page:
        ready(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("#tab-look")
        for panel in ("ask", "understand", "judge", "look"):
            page.keyboard.press("ArrowRight")
            assert page.evaluate("document.activeElement.id") == f"tab-{panel}"
            assert page.get_attribute(f"#tab-{panel}", "aria-selected") == "true"
        ready(page)
        page.focus(".map canvas")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.getElementById('live').textContent.startsWith('Item ')")
        page.keyboard.press("ArrowDown")
        page.keyboard.press(" ")
        page.wait_for_selector(".grid li")
        page.keyboard.press("Enter")
        page.wait_for_selector(".hits button")
        page.focus(".hits button")
        page.keyboard.press("Enter")
        page.wait_for_selector("#morph")
        page.focus("#morph")
        page.keyboard.press("ArrowRight")
        assert page.input_value("#morph") == "1"


NAMED = (
    "button",
    "checkbox",
    "combobox",
    "figure",
    "image",
    "link",
    "radio",
    "slider",
    "spinbutton",
    "tab",
    "tabpanel",
    "textbox",
)


def accessibility_tree(page):
    """What a screen reader is told: (role, name) of every node that Chromium exposes."""
    session = page.context.new_cdp_session(page)
    nodes = [node for node in session.send("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    return [(node["role"]["value"], node.get("name", {}).get("value", "").strip()) for node in nodes]


def test_a_screen_reader_is_told_every_name_and_role(browser, address):
    with visit(browser, address) as page:
        for panel in PANELS:
            page.click(f"#tab-{panel}")
            if panel == "understand":
                understand(page, 0, 4)
            ready(page)
            if panel == "look":
                drag(page, ".map canvas", (0.02, 0.02), (0.98, 0.98))
                page.wait_for_selector(".grid li")
            told = accessibility_tree(page)
            assert [role for role, name in told if role in NAMED and not name] == [], panel
            assert ("tabpanel", panel.capitalize()) in told
            assert {("tab", name.capitalize()) for name in PANELS} <= set(told)
            assert "status" in {role for role, _ in told}  # the live region
            if panel == "look":
                assert "60 selected" in page.locator("#live").inner_text()
                assert any(name.startswith("Item ") and "ask for its neighbours" in name for _, name in told)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_narrow_window_shows_all_panels_without_scrolling_sideways(browser, address, dark):
    with visit(browser, address, width=400, height=800, dark=dark) as page:
        for panel in PANELS:
            page.click(f"#tab-{panel}")
            if panel == "understand":
                understand(page, 0, 4)
            ready(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, panel
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == ("light" if dark else "dark")


def test_images_have_tiles_and_attention(browser):
    torch.manual_seed(0)
    encoder = lw.AttendedFeatures(lw.models.SmallCNN(3, out=8), layers=["norms.1"])
    held = Collection(images(), {"attended": lw.Metric(encoder, lw.Euclidean())}, name="pictures")
    with Explorer(held) as server, visit(browser, server.url) as page:
        ready(page)
        drag(page, ".map canvas", (0.02, 0.02), (0.98, 0.98))
        page.wait_for_selector(".grid canvas")
        page.click("#tab-ask")
        page.wait_for_selector(".hits canvas")
        for kind, start in (("png", b"\x89PNG"), ("svg", b"<svg")):
            with page.expect_download() as download:
                page.click(f".query [data-export={kind}]")
            assert download.value.path().read_bytes().startswith(start)
        page.locator(".hits button").first.click()
        page.wait_for_selector("h3 >> text=Attention of y, norms.1")
        assert page.locator("h3 >> text=What carries the distance").count() == 1


def test_a_token_is_asked_for_and_kept_out_of_addresses(browser, collection):
    token = "a token of the tests"
    with Explorer(collection, token=token) as server, visit(browser, server.url) as page:
        page.fill("#token-value", token)
        page.click("dialog button")
        ready(page)
        assert token not in page.url
        page.problems[:] = [text for text in page.problems if "401" not in text]  # the browser notes the first answer


def test_a_tab_may_be_chosen_before_the_collection_is_here(browser, address):
    with visit(browser, address) as page:
        held = []
        page.route("**/api/collection", lambda route: held.append(route))  # Playwright keeps a mark on what it is given
        with page.expect_request("**/api/collection"):
            page.reload()
        page.click("#tab-judge")
        assert page.get_attribute("#tab-judge", "aria-selected") == "true"
        held[0].continue_()
        ready(page)
        assert page.locator("main").get_attribute("aria-labelledby") == "tab-judge"
        assert page.url.endswith("#judge")


def test_names_are_text_never_markup(browser):
    name = "<img src=x onerror=alert(1)>"
    held = Collection(
        lw.Dataset([[0.0, 1.0], [1.0, 0.0], [1.0, 2.0]], [name, name, "b"], ids=[name, "=1+1", "c"]),
        {"dtw": lw.DTW()},
        name=name,
    )
    with Explorer(held) as server, visit(browser, server.url) as page:
        for panel in PANELS:
            page.click(f"#tab-{panel}")
            if panel == "understand":
                understand(page, 0, 1)
            ready(page)
        assert page.locator("img[src=x]").count() == 0


def test_explore_serves_an_index_in_the_background():
    import urllib.request

    index = lw.search.Index(lw.DTW(), waves(12)) if hasattr(lw, "search") else lw.Index(lw.DTW(), waves(12))
    page = lw.explore(index, {"euclidean": lw.Euclidean()})
    try:
        assert page.url in page._repr_html_()
        found = json.load(urllib.request.urlopen(page.url + "api/collection"))
        assert [metric["name"] for metric in found["metrics"]] == ["DTW", "euclidean"]
        assert found["items"] == 12
    finally:
        page.close()
