"""The pictures of the explorer in docs/_static: python docs/screenshots.py. Needs Chromium, Playwright, umap-learn."""

from pathlib import Path

import torch
from PIL import Image
from playwright.sync_api import sync_playwright

import likewise as lw
from likewise.web import Collection, Explorer

FOLDER = Path(__file__).parent / "_static"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def vowels() -> Collection:
    train, test = lw.data.load_japanese_vowels()
    torch.manual_seed(0)
    metric = lw.Metric(lw.GRUEncoder(12, hidden=32), lw.Euclidean())
    lw.fit(metric, train, epochs=8, verbose=False)
    metrics = {"DTW": lw.DTW(), "soft-DTW": lw.SoftDTW(gamma=0.1), "learned": metric}
    return Collection(test, metrics, name="Japanese Vowels")


def waves() -> Collection:
    """Long series of one channel in three classes."""
    generator = torch.Generator().manual_seed(0)
    items, labels = [], []
    for i in range(60):
        t = torch.linspace(0, 1, 240)
        phase = torch.rand(1, generator=generator)
        noise = 0.08 * torch.randn(240, generator=generator)
        bump = torch.exp(-((t - 0.2 - 0.6 * phase) ** 2) * 900)
        items.append(((6.3 * (t * (2 + i % 3) + phase)).sin() + bump * (1 + i % 3) + noise)[:, None])
        labels.append(("slow", "middle", "quick")[i % 3])
    return Collection(lw.Dataset(items, labels), {"DTW": lw.DTW(band=0.1), "Euclidean": lw.Euclidean()}, name="waves")


def drag(page, selector: str, begin: tuple[float, float], end: tuple[float, float]) -> None:
    box = page.locator(selector).first.bounding_box()
    place = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (begin, end)]
    page.mouse.move(*place[0])
    page.mouse.down()
    page.mouse.move(*place[1], steps=8)
    page.mouse.up()


def shoot(page, name: str, *, full: bool = False) -> None:
    page.wait_for_timeout(500)
    path = FOLDER / f"explorer_{name}.png"
    page.screenshot(path=path, full_page=full)
    Image.open(path).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.name, path.stat().st_size)


def show_vowels(browser) -> None:
    with Explorer(vowels()) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(server.url)
        page.wait_for_selector("[data-ready]")
        drag(page, ".map canvas", (0.2, 0.3), (0.42, 0.62))
        shoot(page, "look")
        page.select_option("#metric", "learned")
        page.get_by_label("Method").select_option("umap")
        page.wait_for_selector("figcaption >> text=UMAP under learned", timeout=120_000)  # it compiles itself first
        shoot(page, "umap")
        page.select_option("#metric", "DTW")
        page.click("#tab-understand")
        page.fill("#pair-x", "3")
        page.fill("#pair-y", "9")
        page.keyboard.press("Tab")
        page.wait_for_selector("main [data-ready]")
        page.fill("#morph", "40")
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        shoot(page, "understand")
        page.click("#tab-judge")
        page.wait_for_selector("main [data-ready]")
        page.select_option("#against", "learned")
        page.wait_for_selector("h3 >> text=against")
        shoot(page, "judge")
        narrow = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme="dark")
        narrow.goto(server.url)
        narrow.wait_for_selector("[data-ready]")
        shoot(narrow, "narrow")


def show_waves(browser) -> None:
    with Explorer(waves()) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.goto(f"{server.url}#ask")
        page.wait_for_selector("main [data-ready]")
        drag(page, ".query svg", (0.42, 0.5), (0.62, 0.5))
        page.wait_for_selector(".match")
        shoot(page, "ask")


def show_images(browser) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.full((60, 3, 32, 32), 60, dtype=torch.uint8)
    for i in range(60):
        x, y = torch.randint(4, 20, (2,), generator=generator).tolist()
        pixels[i, i % 3, y : y + 9, x : x + 9] = 240
    names = [("red", "green", "blue")[i % 3] for i in range(60)]
    torch.manual_seed(0)
    encoder = lw.AttendedFeatures(lw.models.SmallCNN(3, out=16), layers=["norms.1", "norms.2"])
    held = Collection(lw.ImageSet(pixels, names), {"attended": lw.Metric(encoder, lw.Euclidean())}, name="squares")
    with Explorer(held) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 640})
        page.goto(f"{server.url}#ask")
        page.wait_for_selector(".hits canvas")
        page.locator(".hits button").first.click()
        page.wait_for_selector("h3 >> text=Attention of y, norms.2")
        shoot(page, "images")


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for show in (show_vowels, show_waves, show_images):
            show(browser)
        browser.close()


if __name__ == "__main__":
    main()
