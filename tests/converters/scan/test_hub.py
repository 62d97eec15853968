"""Hub ids against a local server that speaks the hub's protocol: findings as for the folder, without weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import pytest
from scan_cases import graph

from converters.scan import scan
from converters.scan.hub import is_hub_id, mirrored, scan_hub
from weights_bridge.errors import StageError

CODES = {403: "GatedRepo", 404: "RepoNotFound"}
SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """A hub with one repository, `owner/name`.

    Attributes:
        folder: the repository's files.
        endpoint: its address.
        sent: bytes sent of each file.
        ranges: whether it answers ranges.
        status: what it answers instead, 0 for nothing else.
        more: names in its listing beside the files.
    """

    folder: Path
    endpoint: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    ranges: bool = True
    status: int = 0
    more: tuple[str, ...] = ()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path / "repository")
    made.folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if made.status:
                self._send(made.status, b"{}", {"X-Error-Code": CODES.get(made.status, "")})
            elif path == "/api/models/owner/name":
                self._send(200, json.dumps(self._listing()).encode(), {"Content-Type": "application/json"})
            elif path.startswith(f"/owner/name/resolve/{SHA}/"):
                self._file(path.removeprefix(f"/owner/name/resolve/{SHA}/"))
            else:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

        def _listing(self) -> dict[str, object]:
            files = [path for path in sorted(made.folder.rglob("*")) if path.is_file()]
            rows = [{"rfilename": str(p.relative_to(made.folder)), "size": p.stat().st_size} for p in files]
            rows += [{"rfilename": name, "size": 1} for name in made.more]
            return {"id": "owner/name", "modelId": "owner/name", "sha": SHA, "siblings": rows, "tags": []}

        def _file(self, name: str) -> None:
            data = (made.folder / name).read_bytes()
            if not made.ranges:
                self._send(200, data, {})
                return
            first, last = (int(one) for one in self.headers["Range"].removeprefix("bytes=").split("-"))
            made.sent[name] = made.sent.get(name, 0) + last + 1 - first
            self._send(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.endpoint = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()


def heavy(body: str = "m = MatMul(x, w) y = Det(m)") -> onnx.ModelProto:
    """A model of 8 MB of weights and one operator that Sentis does not import."""
    model = graph(body, "float[1000,1000] x")
    for name in ("w", "v"):
        values = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


def shown(findings) -> list[tuple[str, str, str]]:
    return [(finding.id, finding.node, finding.file) for finding in findings]


def test_onnx_files_are_scanned_without_their_weights(hub):
    (hub.folder / "onnx").mkdir()
    onnx.save(heavy(), str(hub.folder / "onnx" / "model.onnx"))
    onnx.save(heavy(), str(hub.folder / "split.onnx"), save_as_external_data=True, location="split.onnx.data")
    (hub.folder / "config.json").write_text("{}")
    found, mirror = scan_hub("owner/name", "2.6", endpoint=hub.endpoint)
    assert shown(found) == shown(scan(hub.folder, "2.6")) and "OPERATOR.UNSUPPORTED" in {one.id for one in found}
    assert hub.sent["onnx/model.onnx"] < 600_000 and "split.onnx.data" not in hub.sent
    assert (
        mirror.total > 16e6
        and sum(hub.sent.values()) == mirror.fetched < 1e6
        and str(mirror).startswith("owner/name: ")
    )


def test_a_model_directory_is_scanned_by_its_headers(hub, toy_model):
    for path in toy_model("llama").iterdir():
        (hub.folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((hub.folder / "config.json").read_text())
    (hub.folder / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + 1}))
    found, mirror = scan_hub("owner/name", "2.6", endpoint=hub.endpoint)
    there = {one.id: one.what.replace(str(hub.folder), "owner/name") for one in scan(hub.folder, "2.6")}
    assert {one.id: one.what for one in found} == there and "MODEL.TENSORS" in there
    assert sum(hub.sent.values()) == mirror.fetched < mirror.total and mirror.folder.name == "name"


def test_a_file_that_is_cut_short_is_told_as_of_a_folder(hub):
    whole = heavy().SerializeToString()
    (hub.folder / "model.onnx").write_bytes(whole[:-100])
    with pytest.raises(StageError, match=r"^owner/name/model.onnx: not readable as ONNX .* cut short"):
        scan_hub("owner/name", "2.6", endpoint=hub.endpoint)


@pytest.mark.parametrize("status, message", [(404, "no such model"), (403, "terms of use"), (500, "answered 500")])
def test_what_the_hub_refuses_is_one_line(hub, status, message):
    hub.status = status
    with pytest.raises(StageError, match=message):
        mirrored("owner/name", hub.folder / "copy", hub.endpoint)


def test_a_server_without_ranges_is_not_asked_for_weights(hub):
    onnx.save(heavy(), str(hub.folder / "model.onnx"))
    hub.ranges = False
    with pytest.raises(StageError, match="whole files where a range"):
        scan_hub("owner/name", "2.6", endpoint=hub.endpoint)


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd.json", "a/../../b.json", "a\\..\\b.json"])
def test_a_name_that_leads_outside_is_refused(hub, tmp_path, name):
    hub.more = (name,)
    with pytest.raises(StageError, match="outside of the repository"):
        mirrored("owner/name", tmp_path / "copy", hub.endpoint)
    assert not (tmp_path / "copy").exists() or not any((tmp_path / "copy").iterdir())


def test_nobody_at_home_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("converters.scan.hub._cached", lambda name: None)
    with pytest.raises(StageError, match="cannot be reached"):
        scan_hub("owner/name", "2.6", endpoint="http://127.0.0.1:9")


def test_a_snapshot_in_the_local_cache_stands_in_for_the_hub(tmp_path, monkeypatch):
    import huggingface_hub

    snapshot = tmp_path / "models--owner--name" / "snapshots" / SHA
    snapshot.mkdir(parents=True)
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "refs" / "main").write_text(SHA)
    (snapshot / "model.onnx").write_bytes(heavy().SerializeToString())
    plain = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **given: plain(name, cache_dir=tmp_path, **given)
    )
    found, mirror = scan_hub("owner/name", "2.6", endpoint="http://127.0.0.1:9")
    assert [one.id for one in found] == ["OPERATOR.UNSUPPORTED"] and "cannot be reached" in str(mirror)


def test_a_path_is_no_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onnx").mkdir()
    assert is_hub_id(Path("org/model"))
    for path in ("onnx/model", "runs/model.onnx", "/org/model", "a/b/c", "onnx", "../model", "org/mo del"):
        assert not is_hub_id(Path(path)), path
