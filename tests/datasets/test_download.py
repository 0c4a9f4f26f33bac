from __future__ import annotations

import hashlib
import io
import json
import re
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from migrate.datasets.beir import load_beir
from migrate.datasets.download import BEIR_MD5, download, fetch_beir, resolve_beir
from migrate.errors import DatasetError, LockedError, OutputError, RemoteError, UsageError
from migrate.files import BEIR_URL, output_lock

NOISE = "".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(256))  # 16 kB that deflate cannot shrink away
FILES = {
    "scifact/corpus.jsonl": json.dumps({"_id": "d1", "text": NOISE}) + "\n" + json.dumps({"_id": "d2", "text": "x"}),
    "scifact/queries.jsonl": '{"_id": "q1", "text": "x"}\n',
    "scifact/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t1\n",
    "__MACOSX/scifact/._corpus.jsonl": "x",
}


def zip_of(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """Serves `content` under any path; `faults` are used up one a request."""

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.chunked, self.content_range = content, True, False, None
        self.faults, self.requests, self.sent = [], [], 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.requests.append(wanted)
        fault = server.faults.pop(0) if server.faults else ""
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else 0
        if isinstance(fault, int) or start >= len(server.content):
            self.send_error(fault or 416)
        elif fault.startswith(("/", "http")):
            self.answer(302, {"Location": fault, "Content-Length": "0"}, b"")
        else:
            self.serve(start, is_cut=fault == "cut")

    def serve(self, start, *, is_cut):
        server = self.server
        body = server.content[start:]
        sent = body[: len(body) // 2] if is_cut else body
        server.sent += len(sent)  # before the client goes on
        headers = {"Content-Range": server.content_range or f"bytes {start}-"} if start else {}
        if server.chunked:
            framed = b"%x\r\n%s\r\n" % (len(sent), sent) + (b"" if is_cut else b"0\r\n\r\n")
            self.answer(206 if start else 200, {**headers, "Transfer-Encoding": "chunked"}, framed)
        else:
            self.answer(206 if start else 200, {**headers, "Content-Length": str(len(body))}, sent)
        self.close_connection = is_cut

    def answer(self, status, headers, payload):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args):
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("migrate.datasets.download.time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture
def server(monkeypatch):
    content = zip_of(FILES)
    monkeypatch.setitem(BEIR_MD5, "scifact", hashlib.md5(content).hexdigest())
    with Server(content) as server:
        monkeypatch.setenv(BEIR_URL, f"{server.url}/")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(cache, **options):
    return fetch_beir("scifact", cache=cache, **options)


def test_a_set_is_downloaded_unpacked_and_loaded(server, tmp_path):
    calls = []
    folder = fetch(tmp_path / "cache", progress=lambda *call: calls.append(call))
    assert folder == tmp_path / "cache" / "scifact"
    assert [document.id for document in load_beir(folder).documents()] == ["d1", "d2"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["scifact"]
    assert calls[-1] == ("download", len(server.content), len(server.content))
    assert fetch(tmp_path / "cache") == folder and len(server.requests) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_cut_transfer_is_resumed_in_the_same_run(server, tmp_path, chunked):
    server.faults = ["cut"]
    server.chunked = chunked
    fetch(tmp_path)
    assert server.requests == [None, f"bytes={len(server.content) // 2}-"]
    assert server.sent == len(server.content)


def test_a_transfer_that_stays_cut_is_resumed_by_the_next_run(server, tmp_path):
    server.faults = ["cut", 503, 503, 503, 503]
    with pytest.raises(RemoteError, match=r"503 .*\b5 attempts"):
        fetch(tmp_path)
    half = len(server.content) // 2
    assert (tmp_path / "scifact.zip.part").read_bytes() == server.content[:half]
    calls = []
    fetch(tmp_path, progress=lambda *call: calls.append(call))
    assert server.requests[-1] == f"bytes={half}-"
    assert server.sent == len(server.content)
    assert calls[0][1] > half


def test_a_server_that_ignores_ranges_makes_the_file_start_anew(server, tmp_path):
    (tmp_path / "scifact.zip.part").write_bytes(b"?" * (len(server.content) // 2))
    server.ranges = False
    assert load_beir(fetch(tmp_path)).qrels == {"q1": {"d2": 1}}
    assert server.requests == [f"bytes={len(server.content) // 2}-"]
    assert server.sent == len(server.content)


def test_a_complete_part_file_needs_no_further_byte(server, tmp_path):
    (tmp_path / "scifact.zip.part").write_bytes(server.content)
    fetch(tmp_path)
    assert server.sent == 0


def test_a_server_that_resumes_elsewhere_is_not_believed(server, tmp_path):
    (tmp_path / "scifact.zip.part").write_bytes(server.content[:100])
    server.content_range = "bytes 50-"
    with pytest.raises(RemoteError, match="did not send the bytes from 100 on"):
        fetch(tmp_path)
    assert (tmp_path / "scifact.zip.part").read_bytes() == server.content[:100]


@pytest.mark.parametrize("content", [zip_of(FILES)[:-1] + b"?", zip_of(FILES | {"../evil": "x"})])
def test_bytes_with_another_hash_are_removed_and_not_opened(content, server, tmp_path):
    server.content = content
    with pytest.raises(RemoteError, match=r"scifact\.zip: .*[0-9a-f]{32}.*[0-9a-f]{32}"):
        fetch(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b"]


def test_a_refusal_is_final_and_an_overload_is_not(server, tmp_path):
    server.faults = [404]
    with pytest.raises(RemoteError, match=r"scifact\.zip: 404 Not Found; check the address"):
        fetch(tmp_path)
    assert len(server.requests) == 1
    server.faults = [429, 502]
    fetch(tmp_path)
    assert len(server.requests) == 4


def test_a_silent_server_ends_in_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.datasets.download.ATTEMPTS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.zip"
        with pytest.raises(RemoteError, match="timed out; 2 attempts failed"):
            download(url, tmp_path / "x.part", timeout_s=0.05)


@pytest.mark.parametrize(
    ("url", "folder", "error", "message"),
    [
        ("http://127.0.0.1:9", "", RemoteError, "Connection refused"),
        (None, "nowhere", OutputError, "cannot write"),
        ("file:///etc", "", UsageError, "is not an http or https address"),
    ],
)
def test_what_cannot_be_reached_or_written_is_told(url, folder, error, message, server, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.datasets.download.ATTEMPTS", 1)
    with pytest.raises(error, match=message):
        download(f"{url or server.url}/x.zip", tmp_path / folder / "x.part")


def test_two_runs_do_not_fetch_the_same_set(server, tmp_path):
    with output_lock(tmp_path / "scifact.zip"), pytest.raises(LockedError):
        fetch(tmp_path)
    assert server.requests == []


def test_something_else_in_the_cache_is_not_touched(server, tmp_path):
    (tmp_path / "scifact").mkdir()
    with pytest.raises(DatasetError, match="what is in the cache is not a BEIR folder"):
        fetch(tmp_path)
    assert server.requests == []


def test_an_existing_folder_is_meant_before_a_name_and_an_unknown_name_is_answered_with_the_known(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"'cqadupstack'.* arguana, .*scifact"):
        resolve_beir("cqadupstack")
    (tmp_path / "scifact").mkdir()
    assert resolve_beir("scifact").resolve() == tmp_path / "scifact"


def test_a_name_is_fetched_into_the_cache_from_the_mirror_of_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resolve_beir("scifact") == tmp_path / "lead-migrate" / "beir" / "scifact"


def test_the_table_of_hashes_is_well_formed():
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in BEIR_MD5.values())
    assert len(set(BEIR_MD5.values())) == len(BEIR_MD5) == 14


def test_no_member_is_unpacked_outside_of_the_folder(server, tmp_path, monkeypatch):
    server.content = zip_of(FILES | {"../evil": "x", "scifact/../../evil": "x", "/evil": "x"})
    monkeypatch.setitem(BEIR_MD5, "scifact", hashlib.md5(server.content).hexdigest())
    fetch(tmp_path / "a" / "b")
    assert not list(tmp_path.glob("evil")) + list(tmp_path.glob("a/evil")) + list(tmp_path.glob("a/b/evil"))


def test_a_redirect_within_the_server_is_followed(server, tmp_path):
    server.faults = ["/elsewhere/scifact.zip"]
    assert load_beir(fetch(tmp_path)).qrels == {"q1": {"d2": 1}}
    assert len(server.requests) == 2


def test_a_redirect_to_another_server_is_not_followed(server, tmp_path):
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    server.faults = [f"{elsewhere}/scifact.zip"]
    with pytest.raises(RemoteError, match=f"{server.url} redirects to {elsewhere}; nothing was sent there"):
        fetch(tmp_path)
    assert len(server.requests) == 1
