"""``likewise pairs``."""

import json
import shutil
import socket
from pathlib import Path
from typing import Annotated

import typer

import likewise as lw
from likewise._output import replace_folder
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_both
from likewise.cli.printing import is_terminal, print_facts
from likewise.scale.engine import import_ray
from likewise.scale.tiles import MANIFEST, Layout

PATIENCE = 5.0  # seconds for a cluster to answer


def pairs(
    a: arguments.ItemsA,
    b: Annotated[
        Path | None, typer.Argument(metavar="B", help="More of them; without, A against itself.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the matrix, such as D.zarr.")] = Path(
        "D.zarr"
    ),
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Compute on Ray: auto, local, or the address of a cluster.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the matrix that is in the folder.")] = False,
    tile: Annotated[int | None, typer.Option(help="Side of a tile; measured by default.", show_default=False)] = None,
    half: Annotated[bool, typer.Option("--half", help="Store float16 instead of float32.")] = False,
    cores: Annotated[int | None, typer.Option(help="CPU cores of a worker on Ray.", show_default=False)] = None,
    device: arguments.Device = arguments.DeviceName.CPU,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    settings: arguments.Settings = None,
    split_a: arguments.SplitA = None,
    split_b: arguments.SplitB = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """All distances between A and B, tile by tile, in a folder: for matrices larger than memory.

    The matrix grows in a folder beside it, OUT.unfinished, and is renamed once it is complete; --force then replaces an
    earlier one. An interrupted computation continues with --resume; --force begins anew. --ray auto joins the cluster
    of this machine, --ray local starts one, --ray 10.0.0.1:6379 joins that one.
    """
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize}
    chosen, _ = arguments.choose(distance, metric, settings, **given)
    growing = _place(out, resume=resume, force=force)
    x, y = read_both(a, b, split_a, split_b, columns, size)
    check_kind(x, chosen, a)
    if not resume and growing.exists():
        Layout.read(growing)  # only a matrix of ours is removed
        shutil.rmtree(growing)
    if ray not in (None, "local"):  # scale.matrix starts a local one
        _join(ray)
    D = lw.scale.matrix(
        chosen,
        x,
        y,
        out=growing,
        tile=tile,
        dtype="float16" if half else "float32",
        engine=None if ray is None else "ray",
        devices=arguments.device_of(device),
        cores=cores,
        progress=is_terminal(),
    )
    assert D.report is not None
    if growing != out:
        replace_folder(growing, out)
    facts = {
        "matrix": str(out),
        "distance": chosen.name,
        "shape": list(D.shape),
        "tile": list(D.layout.tile),
        "tiles": D.report.jobs,
        "computed": D.report.computed,
        "lost workers": D.report.losses,
        "seconds": round(D.report.seconds, 3),
    }
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        print_facts(facts)


def _join(address: str) -> None:
    """Join a cluster; an address at which nothing listens is an error at once, while Ray would wait for minutes."""
    module = import_ray("pairs")
    try:
        if address != "auto":
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if not host or not port.isdecimal():
                raise typer.BadParameter(f"--ray {address}: expected auto, local, or an address such as 10.0.0.1:6379")
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
        module.init(address=address, log_to_driver=False)
    except OSError as error:  # a ConnectionError of Ray's, too
        raise ValueError(f"--ray {address}: there is no such cluster; --ray local starts one here") from error


def _place(out: Path, *, resume: bool, force: bool) -> Path:
    """The folder in which the matrix grows: beside ``out``, or in it, if a matrix there is to be mended."""
    part = out.with_name(f"{out.name}.unfinished")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out}: is a file; pairs writes a folder")
    if out.is_dir() and any(out.iterdir()):
        if not (out / MANIFEST).exists():
            raise ValueError(f"{out}: has other files but no matrix; choose another folder")
        Layout.read(out)  # only a matrix of ours is replaced or continued
        if not resume and not force:
            raise ValueError(f"{out}: already has a matrix; --resume continues it, --force replaces it")
        if resume and not part.exists():
            return out
    if part.exists() and not resume and not force:
        raise ValueError(f"{part}: is not complete; --resume continues it, --force begins anew")
    return part
