"""``likewise serve`` and ``likewise explore``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import likewise as lw
from likewise.cli import arguments
from likewise.cli.arguments import DISTANCES, DistanceName
from likewise.cli.files import read_items
from likewise.search import Index

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A folder with a learned metric or an index.", show_default=False)
]
Data = Annotated[
    Path | None,
    typer.Argument(metavar="DATA", help="The items to search; an index holds its own.", show_default=False),
]
More = Annotated[
    list[DistanceName] | None,
    typer.Option(
        "--distance",
        "-d",
        metavar="NAME",
        help="A distance beside it, such as dtw; may be repeated.",
        show_default=False,
    ),
]
Others = Annotated[
    list[Path] | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="FOLDER",
        help="Another metric that train or tune has written, beside it; may be repeated.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option(help="The address to listen on; off loopback, a token is needed.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token that clients must send; or LIKEWISE_TOKEN.", show_default=False),
]


def serve(
    run: Run,
    data: Data = None,
    distance: More = None,
    metric: Others = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="The longest that one request may take.")] = 30.0,
    parallel: Annotated[int, typer.Option(min=1, help="Requests computed at once.")] = 2,
    device: arguments.Device = arguments.DeviceName.AUTO,
    as_json: arguments.Json = False,
) -> None:
    """Serve a metric over HTTP: /search, /align, /explain, /embed, /healthz, and /openapi.json that describes them.

    On SIGTERM and Ctrl-C, running requests are answered first.
    """
    web = _web()
    limits = web.Limits(seconds=seconds, parallel=parallel)
    token = web.read_token(token_file, host)
    given = split, columns, size, metric or [], arguments.gpu_of(device)
    collection = open_collection(run, data, distance or [], *given)
    server = web.Server(web.create_service(collection, limits), host=host, port=port, token=token, limits=limits)
    _announce(server.url, collection, as_json)
    server.run()


def explore(
    run: Run,
    data: Data = None,
    distance: More = None,
    metric: Others = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    as_json: arguments.Json = False,
) -> None:
    """Open a page to browse the items, find neighbours, explain matches, and judge the metric.

    RUN may also be data, which is then compared by DTW, or by the distances and metrics that -d and -m name.
    """
    web = _web()
    token = web.read_token(token_file, host)
    given = split, columns, size, metric or [], arguments.gpu_of(device)
    collection = open_collection(run, data, distance or [], *given)
    page = web.Explorer(collection, host=host, port=port, token=token, seed=seed)
    _announce(page.url, collection, as_json)
    if browser:
        typer.launch(page.url)
    page.run()


def _announce(url: str, collection: Any, as_json: bool) -> None:
    """One line once the server listens."""
    if as_json:
        typer.echo(json.dumps({"url": url, "items": len(collection), "metrics": list(collection.metrics)}))
    else:
        typer.echo(f"{url}: {len(collection):,} items, {', '.join(collection.metrics)}; Ctrl-C stops it")


def open_collection(
    run: Path,
    data: Path | None,
    more: list[DistanceName],
    split: str | None,
    columns: dict[str, str] | None,
    size: int = 96,
    others: Sequence[Path] = (),
    device: str | None = None,
) -> Any:
    """The metric of a run, and the items of data; RUN may itself be data, compared with the metrics given beside it."""
    beside: dict[str, lw.Distance] = {str(name): DISTANCES[name]() for name in more}
    for folder in others:
        if folder.resolve().name in (*beside, run.resolve().name):
            raise ValueError(f"{folder}: two metrics have this name; rename one of the folders")
        beside[folder.resolve().name] = lw.Metric.load(folder)
    if (run / "index.json").is_file():
        if data is not None:
            raise ValueError(f"{run}: is an index, which holds its own items; leave {data} out")
        return _web().Collection.of_index(Index.load(run, device=device), beside, name=run.resolve().name)
    metrics: dict[str, lw.Distance] = {}
    if (run / "config.json").is_file():
        metrics[run.resolve().name] = lw.Metric.load(run)
    elif data is None and run.exists():  # no run, but data
        run, data = run.parent, run
    elif not run.exists():
        raise ValueError(f"{run}: there is no such file or folder")
    else:
        raise ValueError(f"{run}: has no metric; expected a folder with config.json, which likewise train writes")
    metrics |= beside
    if not metrics:
        metrics[str(DistanceName.DTW)] = lw.DTW()
    items = None if data is None else read_items(data, split, columns, size)
    return _web().Collection(items, metrics, name=(data or run).resolve().stem, device=device)


def _web() -> Any:
    """The subpackage, or one line that names the missing extra."""
    from likewise import web

    try:
        web.Server  # noqa: B018  imported on first use
    except ImportError as error:
        raise ValueError(str(error)) from error
    return web
