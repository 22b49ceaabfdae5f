"""MilvusStore: vectors in a Milvus database."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.search.files import Files
from likewise.search.store import NAME, Form, Rows, Where

LONGEST_ID, LONGEST_LABEL, KEY_LENGTH = 512, 1024, 81  # bytes
MOST_FOUND = 16_384  # Milvus's limits: rows of an answer, and vectors of a search
LONGEST_WAIT = 2.0  # seconds between two attempts
LEVELS = ("Strong", "Session", "Bounded", "Eventually")
NEIGHBORS, BUILT_WITH, LEAST_VISITED = 16, 128, 128  # of a vector in the graph; beams that build and search it
# Errors of a server that is starting, or whose components are not connected yet.
PASSING = {1, 2, 4, 5, 8, 9, 101, 103, 401, *range(500, 504), *range(600, 604), *range(901, 906)}
PASSING_TEXT = ("unavailable", "not ready", "connection", "eof", "offline", "not loaded", "timeout", "deadline")
READ = ["id", "key", "steps"]
Result = TypeVar("Result")


class MilvusStore:
    """A Milvus collection, as the store of an index: ``Index(metric, store=MilvusStore(uri, collection))``.

    uri: of a server, "http://host:19530", or the path of a Milvus Lite database, which ends in .db. Only one process at
        a time can open such a path.
    collection: its name. It is created when the first items are added.
    files: where the items are kept, a folder or an address for fsspec, such as "s3://bucket/speech"; or Files. Without
        it the vectors are the items, for Euclidean and Cosine.
    token: "user:password", or a key. consistency: see below. retry: seconds for which requests to a server
        that does not answer are repeated, before ConnectionError. timeout: seconds for one request.

    Consistency: with "Strong", the default, a search sees every change that returned before it began, from any process,
    and waits up to 0.2 s for that. "Bounded" and "Eventually" do not wait and may miss the last seconds; "Session" sees
    this process's own changes. A change is in the server's log when the call returns, and survives a crash of the
    server. One call is not one transaction: another process may see the first items of an ``add`` before the last. An
    ``upsert`` never mixes an old item with a new vector.

    Faults: searches and changes are repeated for ``retry`` seconds if the server is gone or restarts. Changes name rows
    by ids, so that repeating them loses nothing and stores nothing twice; that holds too if you repeat a call that
    raised ConnectionError.

    Needs the extra ``milvus``.

    Example:
        >>> import tempfile, likewise as lw
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = MilvusStore(f"{folder.name}/vectors.db", "walks", files=f"{folder.name}/items")
        >>> index = lw.Index(lw.DTW(), store=store, candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=20))
        >>> _ = index.add([[0.0, 1.0], [5.0, 5.0, 6.0]], ids=["a", "b"], fields={"year": [2019, 2020]})
        >>> index.search([[5.0, 6.0]], k=1).ids.tolist()
        [['b']]
        >>> index.search([[5.0, 6.0]], k=1, where={"year": slice(None, 2020)}).ids.tolist()
        [['a']]
        >>> store.close(), folder.cleanup()
        (None, None)
    """

    def __init__(
        self,
        uri: str,
        collection: str,
        *,
        files: str | Files | None = None,
        token: str = "",
        consistency: str = "Strong",
        retry: float = 60.0,
        timeout: float = 30.0,
    ) -> None:
        op = "MilvusStore"
        if not isinstance(uri, str) or not uri:
            raise TypeError(f"{op}: expected uri to be an address or a path, got {uri!r:.80}")
        if not isinstance(collection, str) or not NAME.fullmatch(collection):
            _check.refuse(op, f"expected collection to be letters, digits and underscores, got {collection!r:.80}")
        if consistency not in LEVELS:
            _check.refuse(op, f"expected consistency to be one of {', '.join(LEVELS)}, got {consistency!r}")
        self.uri, self.collection, self.consistency = uri, collection, consistency
        self.retry = _check.not_negative(op, "retry", retry)
        self.timeout = _check.positive(op, "timeout", timeout)
        self._files = Files(files) if isinstance(files, str) else files
        self._token = token
        self._connected: Any = None
        self._form: Form | None = None

    @property
    def files(self) -> Files | None:
        """Where the items are."""
        return self._files

    def form(self) -> Form | None:
        """The form of the rows; None if the collection does not exist yet."""
        if self._form is None and self._call(lambda client: client.has_collection(self.collection)):
            found = self._call(lambda client: client.describe_collection(self.collection))
            self._form = self._read_form(found)
            self._call(lambda client: client.load_collection(self.collection))
        return self._form

    def create(self, form: Form) -> None:
        """Make the collection, with a graph (HNSW) of its vectors."""
        from pymilvus import DataType

        def make(client: Any) -> None:
            if client.has_collection(self.collection):  # an attempt whose answer was lost, or another process
                return
            schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=LONGEST_ID)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=form.size)
            schema.add_field("key", DataType.VARCHAR, max_length=KEY_LENGTH)
            schema.add_field("steps", DataType.INT64)
            if form.labels == "names":
                schema.add_field("label", DataType.VARCHAR, max_length=LONGEST_LABEL)
            elif form.labels == "targets":
                schema.add_field("label", DataType.DOUBLE)
            graph = {"M": NEIGHBORS, "efConstruction": BUILT_WITH}
            built = client.prepare_index_params()
            built.add_index("vector", index_type="HNSW", metric_type="COSINE" if form.cosine else "L2", params=graph)
            client.create_collection(
                self.collection, schema=schema, index_params=built, consistency_level=self.consistency
            )

        self._call(make)
        made = self.form()
        if made != form:
            _check.refuse("MilvusStore", f"{self!r} was made for {made}, not for {form}")

    def __len__(self) -> int:
        found = self._query("", ["count(*)"])
        return int(found[0]["count(*)"])

    def put(self, rows: Rows) -> None:
        """Write rows, in place of rows with the same ids."""
        assert rows.vectors is not None
        columns: dict[str, Sequence[Any]] = {"id": rows.ids, "key": rows.keys, "steps": rows.steps, **rows.fields}
        columns["vector"] = rows.vectors.tolist()
        if rows.labels is not None:
            columns["label"] = rows.labels.tolist()
        self._check_sizes(rows)
        plain = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        self._call(lambda client: client.upsert(self.collection, plain, timeout=self.timeout))

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        chosen = condition("id", list(ids))
        self._call(lambda client: client.delete(self.collection, filter=chosen, timeout=self.timeout))

    def get(self, ids: Sequence[str]) -> Rows:
        """The existing rows among these ids."""
        return self._rows(self._query(condition("id", list(ids)), self._wanted()) if ids else [])

    def nearest(self, vectors: Tensor, count: int, where: Where, *, with_vectors: bool) -> list[Rows]:
        """About ``count`` nearest rows of each vector, among those that satisfy ``where``."""
        if count > MOST_FOUND:
            _check.refuse("MilvusStore", f"Milvus finds at most {MOST_FOUND} rows of a vector, not {count}")
        chosen = " and ".join(condition(name, value) for name, value in where.items())
        wanted = [*self._wanted(), *(["vector"] if with_vectors else [])]
        found = self._call(
            lambda client: client.search(
                self.collection,
                data=vectors.tolist(),
                limit=count,
                filter=chosen,
                output_fields=wanted,
                search_params={"params": {"ef": max(LEAST_VISITED, 2 * count)}},
                consistency_level=self.consistency,
                timeout=self.timeout,
            )
        )
        return [self._rows([{"id": hit["id"], **hit["entity"]} for hit in hits], with_vectors) for hits in found]

    def scan(self, *, with_vectors: bool) -> Iterator[Rows]:
        """All rows, some at a time."""
        wanted = [*self._wanted(), *(["vector"] if with_vectors else [])]
        pages = self._call(
            lambda client: client.query_iterator(
                self.collection, batch_size=1000, output_fields=wanted, consistency_level=self.consistency
            )
        )
        while found := self._call(lambda client: pages.next()):
            yield self._rows(found, with_vectors)
        pages.close()

    def flush(self) -> None:
        """Ask the server to write its memory to storage and to build the graph. Searches do not need this."""
        self._call(lambda client: client.flush(self.collection))

    def close(self) -> None:
        """Close the connection; a Milvus Lite database can then be opened by others. The next call opens it again."""
        client, self._connected = self._connected, None
        if client is None:
            return
        client.close()
        if self._is_lite:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.uri)

    def __repr__(self) -> str:
        return f"MilvusStore({self.uri!r}, {self.collection!r})"

    # Inside.

    @property
    def _is_lite(self) -> bool:
        return "://" not in self.uri

    def _wanted(self) -> list[str]:
        labelled = self._form is not None and self._form.labels is not None
        return [*READ, "label"] if labelled else READ

    def _query(self, chosen: str, wanted: list[str]) -> Any:
        return self._call(
            lambda client: client.query(
                self.collection,
                filter=chosen,
                output_fields=wanted,
                consistency_level=self.consistency,
                timeout=self.timeout,
            )
        )

    def _rows(self, found: Sequence[Mapping[str, Any]], with_vectors: bool = False) -> Rows:
        """Rows of an answer, checked."""
        try:
            ids, keys = tuple(str(row["id"]) for row in found), tuple(str(row["key"]) for row in found)
            steps = tuple(int(row["steps"]) for row in found)
            labels = None
            if self._form is not None and self._form.labels is not None:
                kind = np.float64 if self._form.labels == "targets" else str
                labels = np.array([row["label"] for row in found], kind)
            vectors = None
            if with_vectors:
                size = 0 if self._form is None else self._form.size
                vectors = torch.tensor([row["vector"] for row in found], dtype=torch.float32).reshape(len(found), size)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{self!r}: a row was not written by likewise: {error!r:.120}") from error
        return Rows(ids, keys, steps, labels, vectors)

    def _read_form(self, found: Mapping[str, Any]) -> Form:
        fields = {field["name"]: field for field in found["fields"]}
        if not {"id", "vector", "key", "steps"} <= set(fields):
            _check.refuse(repr(self), f"was not created by likewise: it has the fields {sorted(fields)!r:.120}")
        built = self._call(lambda client: client.describe_index(self.collection, "vector"))
        kind = None if "label" not in fields else "names" if fields["label"]["type"].name == "VARCHAR" else "targets"
        return Form(int(fields["vector"]["params"]["dim"]), built["metric_type"] == "COSINE", kind)

    def _check_sizes(self, rows: Rows) -> None:
        for what, most, texts in (("id", LONGEST_ID, rows.ids), ("label", LONGEST_LABEL, rows.labels)):
            for text in () if texts is None else texts:
                if isinstance(text, str) and len(text.encode()) > most:
                    _check.refuse("MilvusStore", f"the {what} {text[:40]!r}... has more than {most} bytes")

    def _client(self) -> Any:
        if self._connected is None:
            try:
                from pymilvus import MilvusClient
            except ImportError as error:
                hint = 'pip install "likewise[milvus]"'
                raise ImportError(f"MilvusStore needs pymilvus; install it with {hint}") from error
            # Its errors are raised, and repeated attempts are not errors: no traceback of each in the log.
            logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
            try:
                self._connected = MilvusClient(uri=self.uri, token=self._token, timeout=self.timeout)
            except Exception as error:
                if self._is_lite and "Open local milvus failed" in str(error):
                    hint = "a Milvus Lite database opens in one process at a time; close it there, or use a server"
                    raise OSError(f"{self!r}: cannot be opened: {hint}") from error
                raise
        return self._connected

    def _call(self, call: Callable[[Any], Result]) -> Result:
        """Ask the server, and again if it does not answer for a while. Every call may be repeated."""
        start, wait = time.monotonic(), 0.1
        while True:
            try:
                return call(self._client())
            except Exception as error:
                if not _is_passing(error):
                    raise
                if self._is_lite:  # someone in this process has closed it
                    self._connected = None
                if time.monotonic() - start + wait > self.retry:
                    said = str(getattr(error, "message", error)).strip().splitlines()
                    text = f"{self!r} did not answer for {self.retry:g} s: {said[0][:200] if said else error!r}"
                    raise ConnectionError(text) from error
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def condition(name: str, value: Any) -> str:
    """A condition in Milvus's language.

    Example:
        >>> condition("label", ["a", "b"]), condition("year", slice(2019, 2024))
        ('label in ["a","b"]', '(year >= 2019 and year < 2024)')
    """
    if isinstance(value, slice):
        ends = [("<", value.stop)] if value.start is None else [(">=", value.start), ("<", value.stop)]
        return "(" + " and ".join(f"{name} {sign} {_literal(end)}" for sign, end in ends if end is not None) + ")"
    if isinstance(value, list):
        return f"{name} in [{','.join(map(_literal, value))}]"
    return f"{name} == {_literal(value)}"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_passing(error: Exception) -> bool:
    """Whether a server that is gone or starting answers so."""
    text = str(error).lower()
    if type(error).__module__.startswith("grpc"):
        return True
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    code = getattr(error, "code", None)
    code = code() if callable(code) else code
    if type(error).__module__.startswith("pymilvus"):
        return code in PASSING or any(part in text for part in PASSING_TEXT)
    return False
