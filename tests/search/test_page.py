import re
from html.parser import HTMLParser

import pytest
import torch

import likewise as lw
from tests.search.test_exhaustive import walks

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Strict(HTMLParser):
    """Elements must be closed in order; what may load something is collected."""

    def __init__(self):
        super().__init__()
        self.open, self.found, self.loads = [], [], []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "action", "data") and value[0] != "#"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(hits, path, **options):
    text = hits.to_html(path / "page.html", **options).read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    assert parser.loads == []
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(parser.found)
    assert "url(" not in text
    assert "http" not in re.sub("http-equiv", "", text)
    assert "nan" not in text.replace("nearest", "")
    return text


def test_a_page_of_whole_items(tmp_path):
    hits = lw.Index(lw.DTW(), (walks(20), list("abcde") * 4)).search(walks(2, seed=1), k=4)
    text = page(hits, tmp_path, q=1, k=3)
    assert text.count("<svg") == 3
    assert "Query 1: 4 hits" in text
    assert "Nearest of another class" in text
    assert hits.ids[1, 0] in text
    assert "My search" in page(hits, tmp_path, title="My search")


@pytest.mark.parametrize(
    "index",
    [
        lambda: lw.Index(lw.SoftDTW(), walks(5)),
        lambda: lw.Index(lw.DTW(band=2), walks(2, 60), length=12, normalize="window"),
        lambda: lw.Index(lw.CoupledGRU(2, hidden=(3,), standardize=False), walks(5)),
        lambda: lw.Index(lw.DTW(), torch.zeros(3, 12, 2)),
    ],
    ids=["soft", "windows", "steps", "zeros"],
)
def test_pages_of_other_indexes(index, tmp_path):
    torch.manual_seed(0)
    page(index().search(walks(1, seed=1), k=2), tmp_path)


def test_a_page_of_vectors_and_of_nothing(tmp_path):
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert "<svg" not in page(lw.Index(lw.Cosine(), x).search(x[:1], k=2), tmp_path).partition("</style>")[2]
    assert "0 hits" in page(lw.Index(lw.DTW(), walks(2)).search(walks(1, seed=5), within=0.0), tmp_path)


def test_names_are_text_and_never_markup(tmp_path):
    evil = "</title><script>alert(1)</script>"
    hits = lw.Index(lw.DTW(), walks(2), ids=[evil, '"><img src=x>'], labels=[evil, "<b>"]).search(walks(1), k=2)
    text = page(hits, tmp_path, title=evil)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
