"""The service: /search, /align, /explain, /embed and /healthz over a Collection."""

import io
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from likewise.data.batch import Batch
from likewise.models.metric import Metric
from likewise.web import bodies
from likewise.web.answers import (
    Alignments,
    Embeddings,
    Explanations,
    Health,
    Neighbours,
    Problem,
    finite,
    to_json,
)
from likewise.web.bodies import JSON, NPY, PICTURES
from likewise.web.collection import Collection
from likewise.web.limits import DEFAULT_LIMITS, Limits
from likewise.web.refusals import Refusal
from likewise.web.understanding import contributions
from likewise.web.work import Job, Work

VERSION = metadata.version("likewise")
log = logging.getLogger("likewise.web")
MOST_CELLS = 1 << 24  # cells of an alignment whose plan is held in memory
FOLDERS = re.compile(r"(?<![\w./])(?:[A-Za-z]:)?(?:[/\\][^\s/\\:;,'\")]+){2,}")  # a path of the server's disk in a text

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "Not a request that can be read",
        401: "A token is needed",
        403: "From another site's page",
        408: "The body took too long to arrive",
        413: "The body is too large",
        415: "Neither JSON nor .npy",
        421: "Addressed to another host",
        422: "The body or an option does not fit; the detail says where",
        429: "Too many requests are waiting",
        503: "The computation took too long, or the server is shutting down",
    }.items()
}


class Service:
    """The endpoints over a Collection, with their limits."""

    def __init__(self, collection: Collection, limits: Limits) -> None:
        self.collection, self.limits = collection, limits
        self.work = Work(limits)

    async def answer(self, request: Request, compute: Callable[[Job, bytes, str], Response]) -> Response:
        """Read the body, and compute the answer from it in a thread: compute(job, body, content type)."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        async with self.work.body(request) as body:
            data = bytes(body)
        return await self.work.run(request, lambda job: compute(job, data, kind))

    async def search(self, request: Request) -> Response:
        """The nearest items of each query."""
        parameters = dict(request.query_params)

        def compute(job: Job, body: bytes, kind: str) -> Response:
            options, queries = self._read(bodies.SearchOptions, bodies.SearchBody, "queries", body, kind, parameters)
            if options.k > self.limits.k:
                raise Refusal(422, f"k: {options.k} is more than {self.limits.k}")
            name, _ = self.collection.metric(options.metric)
            found = self.collection.search(name, queries, k=options.k, within=options.within, job=job)
            labels, ids = self.collection.labels, self.collection.ids
            hits = [
                [
                    {
                        "item": hit.item,
                        "id": ids[hit.item],
                        "label": None if labels is None else str(labels[hit.item]),
                        "distance": finite(hit.distance),
                        "start": hit.start,
                        "end": hit.end,
                    }
                    for hit in row
                ]
                for row in found.hits
            ]
            counted = {"candidates": found.candidates, "pruned": found.killed}
            return answer_json(
                {"metric": name, "hits": hits, "seconds": found.seconds, "method": found.method, **counted}
            )

        return await self.answer(request, compute)

    async def embed(self, request: Request) -> Response:
        """The items, encoded by the metric's encoder."""
        parameters, wanted = dict(request.query_params), request.headers.get("accept", "")

        def compute(job: Job, body: bytes, kind: str) -> Response:
            options, items = self._read(bodies.EmbedOptions, bodies.EmbedBody, "items", body, kind, parameters)
            name, _ = self.collection.metric(options.metric)
            began = time.perf_counter()
            job.check()
            found = self.collection.embed(name, items)
            seconds = time.perf_counter() - began
            if NPY in wanted:
                if isinstance(found, Batch) and len(set(found.lengths.tolist())) > 1:
                    raise Refusal(422, "sequences of different lengths do not fit one .npy array; ask for JSON")
                return _npy(found.values.numpy() if isinstance(found, Batch) else found.numpy())
            rows = [row.tolist() for row in found]
            return answer_json({"metric": name, "embeddings": finite(rows), "seconds": seconds})

        return await self.answer(request, compute)

    async def align(self, request: Request) -> Response:
        """How x[b] and y[b] match."""

        def compute(job: Job, body: bytes, kind: str) -> Response:
            name, x, y = self._pairs(body, kind)
            began = time.perf_counter()
            found = []
            for b in range(len(x)):
                job.check()
                pair = self.collection.align(name, _item(x, b), _item(y, b))
                path, warp = pair.path(0).tolist(), pair.warp[0, : int(x.lengths[b])].tolist()
                found.append({"distance": finite(float(pair.value[0])), "path": path, "warp": finite(warp)})
            return answer_json({"metric": name, "alignments": found, "seconds": time.perf_counter() - began})

        return await self.answer(request, compute)

    async def explain(self, request: Request) -> Response:
        """Which frames and channels of x[b] carry its distance to y[b]."""

        def compute(job: Job, body: bytes, kind: str) -> Response:
            name, x, y = self._pairs(body, kind, MOST_CELLS // 4)
            metric = self.collection.metrics[name]
            began = time.perf_counter()
            found = []
            for b in range(len(x)):
                job.check()
                a, c = _item(x, b), _item(y, b)
                pair = self.collection.try_align(name, a, c)
                parts = contributions(metric, a, c, pair, job)
                total = float(parts.parts.sum()) + parts.rest
                explained = {"distance": finite(total), "contributions": finite(parts.parts.tolist())}
                path = None if pair is None else pair.path(0).tolist()
                found.append(explained | {"rest": finite(parts.rest), "method": parts.method, "path": path})
            return answer_json({"metric": name, "explanations": found, "seconds": time.perf_counter() - began})

        return await self.answer(request, compute)

    def _read(
        self, options: Any, model: Any, field: str, body: bytes, kind: str, parameters: dict[str, str]
    ) -> tuple[Any, Any]:
        """The options and the items of a body."""
        if kind == JSON:
            if parameters:
                raise Refusal(422, "with a JSON body, options belong in the body")
            given = bodies.parse(model, body)
            if self.collection.like.image is not None:
                raise Refusal(422, f"{field}: send images as .npy, PNG, JPEG or WebP")
            channels = self.collection.like.channels
            return given, bodies.sequences(field, getattr(given, field), self.limits, channels)
        chosen = bodies.parse_options(options, parameters)
        if kind == NPY:
            return chosen, bodies.array(body, field, self.limits, self.collection.like)
        if kind in PICTURES and self.collection.like.image is not None:
            return chosen, bodies.picture(body, self.limits, self.collection.like.image)
        raise Refusal(415, f"expected {JSON} or {NPY}")

    def _pairs(self, body: bytes, kind: str, most: int = MOST_CELLS) -> tuple[str, Batch, Batch]:
        if kind != JSON:
            raise Refusal(415, f"expected {JSON}")
        given = bodies.parse(bodies.PairsBody, body)
        name, _ = self.collection.metric(given.metric)
        x = bodies.sequences("x", given.x, self.limits, self.collection.like.channels)
        y = bodies.sequences("y", given.y, self.limits, x.values.shape[2])
        if len(x) != len(y):
            raise Refusal(422, f"expected as many y as x, got {len(y)} and {len(x)}")
        for b in range(len(x)):
            if int(x.lengths[b]) * int(y.lengths[b]) > most:
                raise Refusal(422, f"pair {b}: {x.lengths[b]} x {y.lengths[b]} steps are more than {most} cells")
        return name, x, y

    async def health(self, request: Request) -> Response:
        """The state of the service, its items and its metrics."""
        metrics = self.collection.metrics
        embeds = [name for name, metric in metrics.items() if isinstance(metric, Metric) and metric.encoder]
        counts = {"items": len(self.collection), "kind": self.collection.kind}
        return answer_json({"status": "ok", "version": VERSION, **counts, "metrics": list(metrics), "embeds": embeds})


def create_service(collection: Collection, limits: Limits = DEFAULT_LIMITS) -> FastAPI:
    """A FastAPI application with the endpoints of a service.

    Example:
        >>> from likewise import DTW
        >>> app = create_service(Collection([[0.0, 1.0]], {"dtw": DTW()}))
        >>> app.title
        'likewise'
    """
    service = Service(collection, limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.work.close()

    app = FastAPI(
        title="likewise",
        version=VERSION,
        description="Search, align, explain and embed with distances between sequences and between images.",
        docs_url=None,  # these pages load scripts from another host
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _handle_errors(app)
    for path, handler, model, body, options in (
        ("/search", service.search, Neighbours, bodies.SearchBody, bodies.SearchOptions),
        ("/align", service.align, Alignments, bodies.PairsBody, None),
        ("/explain", service.explain, Explanations, bodies.PairsBody, None),
        ("/embed", service.embed, Embeddings, bodies.EmbedBody, bodies.EmbedOptions),
    ):
        app.add_api_route(
            path,
            handler,
            methods=["POST"],
            responses={200: {"model": model}, **REFUSALS},
            response_class=Response,
            openapi_extra=_described(service, body, options),
        )
    app.add_api_route(
        "/healthz", service.health, methods=["GET"], responses={200: {"model": Health}}, response_class=Response
    )
    return app


def _described(service: Service, body: Any, options: Any) -> dict[str, Any]:
    """The description of a body for this collection: JSON, and with options in the address an .npy array too."""
    schema = body.model_json_schema()
    fields = schema["properties"]
    for name in ("queries", "items", "x", "y"):
        if name in fields:
            fields[name] |= {"maxItems": service.limits.queries, "items": _item_schema(service)}
    _narrow(service, fields)
    content: dict[str, Any] = {JSON: {"schema": schema}}
    described: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    if options is not None:
        content[NPY] = {"schema": {"type": "string", "format": "binary"}}
        parameters = options.model_json_schema()["properties"]
        _narrow(service, parameters)
        described["parameters"] = [
            {"name": name, "in": "query", "required": False, "schema": found} for name, found in parameters.items()
        ]
    return described


def _narrow(service: Service, fields: dict[str, Any]) -> None:
    """The names of this collection's metrics, and the largest k."""
    fields["metric"]["anyOf"][0]["enum"] = list(service.collection.metrics)
    if "k" in fields:
        fields["k"]["maximum"] = service.limits.k


def _item_schema(service: Service) -> dict[str, Any]:
    """A sequence of this collection: numbers for one channel, or frames."""
    limits, channels = service.limits, service.collection.like.channels
    number = {"type": "number", "minimum": -bodies.LARGEST, "maximum": bodies.LARGEST}
    steps = {"type": "array", "minItems": 1, "maxItems": limits.length}
    width = {"minItems": channels or 1, "maxItems": channels or limits.channels}
    frames = {**steps, "items": {"type": "array", **width, "items": number}}
    return frames if channels not in (None, 1) else {"anyOf": [{**steps, "items": number}, frames]}


def _handle_errors(app: FastAPI) -> None:
    """Errors as JSON with a detail; bugs of the server are logged, and not shown to the client."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return answer_json({"detail": error.detail}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        return answer_json({"detail": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer_json({"detail": "an option does not fit"}, 422)

    # The library raises these for what a user gave, with the fix in the message.
    @app.exception_handler(ValueError)
    @app.exception_handler(TypeError)
    async def mistaken(request: Request, error: Exception) -> Response:
        log.info("422 %s: %s", request.url.path, error)
        return answer_json({"detail": FOLDERS.sub("a file of the server", " ".join(str(error).split()))[:500]}, 422)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        log.error("500 %s", request.url.path, exc_info=error)
        return answer_json({"detail": "internal error; the server's log has the details"}, 500)


def answer_json(answer: Any, status: int = 200, headers: Any = None) -> Response:
    """A JSON answer."""
    return Response(to_json(answer), status, headers, JSON)


def _npy(array: np.ndarray) -> Response:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return Response(buffer.getvalue(), 200, None, NPY)


def _item(batch: Batch, b: int) -> Batch:
    return Batch(batch.values[b : b + 1, : int(batch.lengths[b])])
