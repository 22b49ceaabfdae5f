"""The service under load, and the time until the explorer's map is drawn.

    python benchmarks/service.py [--clients 64] [--seconds 60] [--items 10000]

The server is a process of its own on loopback; the clients are another. Before any time is printed, one answer is
compared with the library's. While the clients ask, ten connections send their bodies a byte at a time, and ten more are
cut in the middle of their requests: the server must go on, and its memory must stay flat.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import machine

import likewise as lw

STEPS, CHANNELS, K = 64, 3, 10
RESULTS = Path(__file__).parent / "results" / "service.jsonl"


def walks(count: int) -> lw.Dataset:
    """Random walks in ten classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (count,), generator=generator)
    drift = torch.randn(10, 1, CHANNELS, generator=generator) / 8
    steps = torch.randn(count, STEPS, CHANNELS, generator=generator) / 4 + drift[labels]
    return lw.Dataset(steps.cumsum(1), [f"class {label}" for label in labels.tolist()])


def memory_mb(process: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    return int(lines["VmRSS"].split()[0]) / 1024


def start(command: str, *arguments: str) -> tuple[subprocess.Popen, int]:
    full = [sys.executable, "-m", "likewise", command, *arguments, "--port", "0"]
    process = subprocess.Popen(full, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r":(\d+)/", process.stdout.readline())
    assert found is not None
    return process, int(found[1])


def body(data: lw.Dataset, i: int) -> bytes:
    return json.dumps({"queries": [data.items[i].tolist()], "k": K}).encode()


def request(content: bytes) -> bytes:
    head = "POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
    return int(head.split(b" ", 2)[1]), await reader.readexactly(size)


async def check(port: int, data: lw.Dataset) -> None:
    """Compare one answer with the library's before measuring."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for i in (0, 7):
        writer.write(request(body(data, i)))
        status, content = await answer(reader)
        values, items = lw.DTW().matrix(data.items[i : i + 1], data.items)[0].sort(stable=True)
        hits = json.loads(content)["hits"][0]
        assert status == 200
        assert [hit["item"] for hit in hits] == items[:K].tolist()
        np.testing.assert_allclose([hit["distance"] for hit in hits], values[:K], rtol=1e-4, atol=1e-4)
    writer.close()


async def client(port: int, requests: list[bytes], end: float, took: list[float], statuses: dict[int, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = 0
    while time.perf_counter() < end:
        began = time.perf_counter()
        writer.write(requests[turn % len(requests)])
        status, _ = await answer(reader)
        took.append(time.perf_counter() - began)
        statuses[status] = statuses.get(status, 0) + 1
        turn += 1
    writer.close()


async def slow(port: int, content: bytes, end: float) -> None:
    """A body a byte at a time, again and again."""
    while time.perf_counter() < end:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in request(content):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.2)
                if time.perf_counter() > end or writer.is_closing():
                    break
            writer.close()
        except OSError:
            pass


async def killed(port: int, content: bytes, end: float) -> None:
    """A request whose sender is gone before the answer."""
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.write(request(content))
        await asyncio.sleep(0.3)
        writer.transport.abort()


async def load(port: int, process: int, data: lw.Dataset, clients: int, seconds: float) -> dict:
    await check(port, data)
    contents = [body(data, i) for i in range(50)]
    requests = [request(content) for content in contents]
    warm = time.perf_counter() + 5
    await asyncio.gather(*(client(port, requests, warm, [], {}) for _ in range(clients)))
    began, took, statuses = time.perf_counter(), [], {}
    end = began + seconds
    memory = []

    async def watch() -> None:
        while time.perf_counter() < end:
            memory.append(memory_mb(process))
            await asyncio.sleep(1)

    others = [slow(port, contents[0], end) for _ in range(10)] + [killed(port, contents[1], end) for _ in range(10)]
    work = [client(port, requests[i % 50 :] + requests, end, took, statuses) for i in range(clients)]
    await asyncio.gather(watch(), *others, *work)
    spent = time.perf_counter() - began
    return {
        "requests_per_second": len(took) / spent,
        "p50_ms": 1000 * float(np.quantile(took, 0.5)),
        "p99_ms": 1000 * float(np.quantile(took, 0.99)),
        "statuses": statuses,
        "memory_mb": [round(float(part.mean()), 1) for part in np.array_split(memory, 4)],  # of each quarter
    }


def draw(folder: Path, count: int) -> dict | None:
    """Seconds from the address to the finished map, in Chromium: the first visitor's, and a later one's."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if not Path("/usr/bin/chromium").exists():
        return None
    data = walks(count)
    lw.data.write_npz(data, folder / "many.npz")
    process, port = start("explore", str(folder / "many.npz"))
    found = []
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        browser.new_page().goto("about:blank")
        for _ in range(4):
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            began = time.perf_counter()
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("[data-ready]")
            found.append(time.perf_counter() - began)
        # Twenty repaints of the whole map, as a zoom would ask for.
        frame = page.evaluate(
            """async () => {
                const canvas = document.querySelector('.map canvas');
                const began = performance.now();
                for (let i = 0; i < 20; i++) {
                    const turn = { deltaY: i % 2 ? 1 : -1, clientX: 400, clientY: 400 };
                    canvas.dispatchEvent(new WheelEvent('wheel', turn));
                    await new Promise(requestAnimationFrame);
                }
                return (performance.now() - began) / 20;
            }"""
        )
        browser.close()
    process.terminate()
    process.wait()
    return {"items": count, "first_s": found[0], "later_s": sorted(found[1:])[1], "frame_ms": frame}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--items", type=int, default=10_000, help="of the explorer's map; 0 leaves it out")
    parser.add_argument("--references", type=int, default=1000, help="items that the service searches")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = walks(options.references)
        lw.data.write_npz(data, folder / "walks.npz")
        rows = []
        if options.seconds > 0:
            process, port = start("serve", str(folder / "walks.npz"), "--parallel", "2")
            try:
                found = asyncio.run(load(port, process.pid, data, options.clients, options.seconds))
            finally:
                process.terminate()
                process.wait()
            case = f"/search, DTW, {options.references:,} items of {STEPS} x {CHANNELS}, {options.clients} clients"
            rows.append({"case": case, "seconds": options.seconds, **found})
        if options.items and (drawn := draw(folder, options.items)) is not None:
            rows.append({"case": f"explorer: map of {options.items:,} items", **drawn})
    for row in rows:
        row |= {"load": os.getloadavg()[0], **machine()}
        print(json.dumps(row))
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
