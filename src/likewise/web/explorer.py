"""The explorer: the page, and its endpoints."""

import mimetypes
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import Field

from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.search import Index
from likewise.web import bodies
from likewise.web.answers import finite
from likewise.web.collection import Collection
from likewise.web.limits import Limits
from likewise.web.panels import Panels
from likewise.web.refusals import Refusal
from likewise.web.server import Server
from likewise.web.service import Service, answer_json, create_service
from likewise.web.work import Job

PAGE = Path(__file__).parent / "page"
PAGE_LIMITS = Limits(seconds=300.0)  # a person waits for these, and UMAP compiles itself first


class Ref(bodies.Strict):
    """An item: of the collection, uploaded, or drawn; with start and end, a stretch of it."""

    item: Annotated[int | None, Field(ge=0)] = None
    upload: Annotated[str | None, Field(max_length=64)] = None
    values: bodies.Sequence | None = None
    start: Annotated[int | None, Field(ge=0)] = None
    end: Annotated[int | None, Field(ge=1)] = None


class AskBody(bodies.Strict):
    """A query, and the metrics that answer it side by side."""

    query: Ref
    metrics: Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=8)]
    k: Annotated[int, Field(ge=1, le=200)] = 10


class PairBody(bodies.Strict):
    """Two items and a metric."""

    x: Ref
    y: Ref
    metric: Annotated[str, Field(max_length=200)]


class ItemsBody(bodies.Strict):
    """Items to draw small."""

    items: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=400)]
    size: Annotated[int, Field(ge=8, le=256)] = 56


def create_explorer(collection: Collection, limits: Limits = PAGE_LIMITS, seed: int = 0) -> FastAPI:
    """The service with the page, and the page's endpoints under /api.

    seed: of the samples of large collections, and of UMAP.

    Example:
        >>> app = create_explorer(Collection([[0.0, 1.0]], {"dtw": DTW()}))
        >>> "/" in {route.path for route in app.routes}
        True
    """
    app = create_service(collection, limits)
    service: Service = app.state.service
    panels = Panels(collection, limits, seed)
    app.state.panels = panels

    def post(path: str, model: Any, compute: Any) -> None:
        async def handler(request: Request) -> Response:
            def work(job: Job, body: bytes, kind: str) -> Response:
                if kind != bodies.JSON:
                    raise Refusal(415, f"expected {bodies.JSON}")
                return _response(compute(job, bodies.parse(model, body)))

            return await service.answer(request, work)

        app.add_api_route(path, handler, methods=["POST"], include_in_schema=False)

    def get(path: str, compute: Any) -> None:
        async def handler(request: Request) -> Response:
            given = dict(request.query_params)
            return await service.work.run(request, lambda job: _response(compute(job, given)))

        app.add_api_route(path, handler, methods=["GET"], include_in_schema=False)

    async def upload(request: Request) -> Response:
        return await service.answer(request, lambda job, body, kind: _response(panels.upload(body, kind)))

    get("/api/collection", lambda job, given: panels.describe())
    get("/api/map", lambda job, given: panels.map(job, given.get("metric"), given.get("method")))
    get("/api/judge", lambda job, given: panels.judge(job, given.get("metric")))
    get("/api/item", lambda job, given: panels.item(given.get("item", "")))
    post("/api/thumbnails", ItemsBody, lambda job, body: panels.thumbnails(body.items, body.size))
    post("/api/ask", AskBody, lambda job, body: panels.ask(job, body.query, body.metrics, body.k))
    post("/api/understand", PairBody, lambda job, body: panels.understand(job, body.x, body.y, body.metric))
    app.add_api_route("/api/upload", upload, methods=["POST"], include_in_schema=False)
    _add_page(app)
    return app


def _response(answer: Any) -> Response:
    return Response(answer, 200, None, "image/png") if isinstance(answer, bytes) else answer_json(finite_tree(answer))


def finite_tree(value: Any) -> Any:
    """Dictionaries and lists without numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite_tree(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list, tuple)):
        return [finite_tree(part) for part in value]
    return finite(value)


def page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page by address: bytes and type. No other file is ever served."""
    files = {}
    for path in sorted(PAGE.iterdir()):
        if path.suffix in (".html", ".css", ".js", ".svg"):
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            kind = "text/javascript" if path.suffix == ".js" else kind
            files["/" if path.name == "index.html" else f"/{path.name}"] = (path.read_bytes(), kind)
    return files


def _add_page(app: FastAPI) -> None:
    for address, (content, kind) in page_files().items():

        async def file(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, 200, {"Cache-Control": "no-cache"}, f"{kind}; charset=utf-8")

        app.add_api_route(address, file, methods=["GET"], include_in_schema=False)


class Explorer(Server):
    """A server with the page of a collection; ``url`` is its address, ``close`` ends it.

    Example:
        >>> with Explorer(Collection([[0.0, 1.0]], {"dtw": DTW()})) as page:
        ...     page
        Explorer(http://127.0.0.1:..., 1 item)
    """

    def __init__(self, collection: Collection, *, limits: Limits = PAGE_LIMITS, seed: int = 0, **options: Any) -> None:
        app = create_explorer(collection, limits, seed)
        super().__init__(app, public=("/healthz", *page_files()), limits=limits, **options)
        app.state.panels.warm()
        self.collection = collection

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noopener">Explore {len(self.collection):,} items</a>'

    def __repr__(self) -> str:
        return f"Explorer({self.url}, {len(self.collection):,} item{'s' * (len(self.collection) != 1)})"


def explore(
    items: Any,
    metrics: Distance | Mapping[str, Distance] | None = None,
    *,
    name: str = "collection",
    port: int = 0,
    open_browser: bool = False,
) -> Explorer:
    """Open the explorer: a page on this machine to browse items, search, explain matches and judge metrics.

    items: an Index, a Dataset, an ImageSet, a Batch, a list of sequences, or a pair (items, labels).
    metrics: a Distance, or several by name, to be compared side by side; by default the index's own, or DTW.
    port: 0 picks a free one. open_browser: open the page at once.

    Returns an Explorer, which serves in the background until ``close``; in a notebook it shows a link.
    Needs the extra ``web``.

    Example:
        >>> import urllib.request
        >>> from likewise import DTW, SoftDTW
        >>> page = explore(([[0.0, 1.0], [5.0, 6.0]], ["low", "high"]), {"dtw": DTW(), "soft-dtw": SoftDTW()})
        >>> b"<title>" in urllib.request.urlopen(page.url).read()
        True
        >>> page.close()
    """
    given = {metrics.name: metrics} if isinstance(metrics, Distance) else dict(metrics or {})
    if isinstance(items, Index):
        collection = Collection.of_index(items, given, name=name)
    else:
        collection = Collection(items, given or {"DTW": DTW()}, name=name)
    page = Explorer(collection, port=port)
    page.start()
    if open_browser:
        webbrowser.open(page.url)
    return page
