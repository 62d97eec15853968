"""A repository of the hub as a folder that `scan` reads, without its weights.

Texts are brought whole. Of a safetensors file the header is, of an ONNX file what the scanner walks over (names, nodes,
small constants): both through requests for ranges of bytes, into a file of the true size whose other bytes are holes.
So the scan of a repository and of a directory are the same code over the same bytes.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from converters.finding import Finding
from converters.wire import walk
from weights_bridge.errors import StageError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
TEXTS = (".json", ".jinja", ".txt")
MOST_TEXT = 1 << 26  # bytes of one text; a tokenizer of 260,000 words has 33 million
BLOCK = 1 << 17  # bytes of one request
OFFLINE_HINT = "connect, or give a local directory or file"
PARTIAL = 206  # HTTP: the range that was asked for


def is_hub_id(target: Path) -> bool:
    """Tell whether a target that is nowhere here can be a hub id; a path in an existing folder is a path."""
    text = target.as_posix()
    here = target.exists() or target.parent.is_dir() or target.suffix == ".onnx"
    return not here and HUB_ID.fullmatch(text) is not None


@dataclass
class Remote:
    """A file on the hub whose bytes come when they are looked at; it stands in for a memory map.

    Attributes:
        fetch: (first byte, one behind the last) to bytes.
        size: of the file.
        copy: the local file that takes what was fetched.
        held: number of a block to its bytes.
    """

    fetch: Callable[[int, int], bytes]
    size: int
    copy: Path
    held: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.copy.parent.mkdir(parents=True, exist_ok=True)
        with self.copy.open("wb") as file:
            file.truncate(self.size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, stop, _ = at.indices(self.size)
            return b"".join(self._part(number, start, stop) for number in range(start // BLOCK, -(-stop // BLOCK)))
        return self._block(at // BLOCK)[at % BLOCK]

    def _part(self, number: int, start: int, stop: int) -> bytes:
        first = number * BLOCK
        return self._block(number)[max(0, start - first) : stop - first]

    def _block(self, number: int) -> bytes:
        if number not in self.held:
            first = number * BLOCK
            self.held[number] = self.fetch(first, min(first + BLOCK, self.size))
            with self.copy.open("r+b") as file:
                file.seek(first)
                file.write(self.held[number])
        return self.held[number]


@dataclass
class Mirror:
    """What was brought of a repository.

    Attributes:
        name: `owner/name`.
        folder: where it lies.
        requests: how many ranges were asked for.
        fetched: how many bytes came.
        total: how many bytes its files have.
    """

    name: str
    folder: Path
    requests: int = 0
    fetched: int = 0
    total: int = 0

    def __str__(self) -> str:
        if not self.total:
            return f"{self.name}: the hub cannot be reached; scanned is {self.folder}"
        return f"{self.name}: {self.fetched / 1e6:.1f} of {self.total / 1e6:.1f} MB in {self.requests} requests"


def scan_hub(
    name: str, sentis: str, *, notes: bool = False, endpoint: str | None = None
) -> tuple[list[Finding], Mirror]:
    """Return the findings for a repository of the hub, or for its snapshot in the local cache where there is no hub.

    Raises:
        StageError: see `mirrored`; nothing to scan in it.
    """
    from converters.scan import scan

    with tempfile.TemporaryDirectory() as folder:
        try:
            mirror = mirrored(name, Path(folder) / name.rpartition("/")[2], endpoint)
        except StageError as error:
            if (cached := _cached(name)) is None or error.hint != OFFLINE_HINT:
                raise
            mirror = Mirror(name, cached)
        here = str(mirror.folder)
        try:
            found = scan(mirror.folder, sentis, notes=notes)
        except StageError as error:
            raise StageError(error.message.replace(here, name), hint=error.hint) from None
        return [replace(one, what=one.what.replace(here, name)) for one in found], mirror


def _cached(name: str) -> Path | None:
    """Return the snapshot of a repository in huggingface_hub's own cache, None where there is none."""
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (errors.LocalEntryNotFoundError, OSError, ValueError):
        return None


def mirrored(name: str, folder: Path, endpoint: str | None = None) -> Mirror:
    """Bring what a scan reads of a repository.

    Args:
        name: `owner/name`.
        folder: takes the files; large ones have holes.
        endpoint: of the hub; huggingface_hub's own when None (`HF_ENDPOINT`).

    Raises:
        StageError: no network, no such repository, one behind terms, or a server without ranges.
    """
    from huggingface_hub import HfApi, hf_hub_url

    api = HfApi(endpoint=endpoint)
    info = _asked(name, lambda: api.model_info(name, files_metadata=True))
    mirror = Mirror(name, folder)
    for sibling in info.siblings or []:
        path, size = _inside(name, sibling.rfilename), sibling.size or 0
        url = hf_hub_url(name, sibling.rfilename, revision=info.sha, endpoint=endpoint)
        mirror.total += size
        _bring(mirror, folder / path, size, lambda start, stop, url=url: _range(mirror, url, start, stop))
    return mirror


def _inside(name: str, path: str) -> Path:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or not parts.parts:
        raise StageError(f"{name}: a file named {path!r} would lie outside of the repository", hint="do not trust it")
    return Path(*parts.parts)


def _bring(mirror: Mirror, copy: Path, size: int, fetch: Callable[[int, int], bytes]) -> None:
    """Bring one file: a text whole, of weights and models what a scan reads, of others the size alone."""
    remote = Remote(fetch, size, copy)
    if not size:
        return
    if copy.suffix in TEXTS and size <= MOST_TEXT:
        _ = remote[0:size]
    elif copy.suffix == ".safetensors":
        length = struct.unpack("<Q", remote[0:8])[0] if size >= 8 else 0
        _ = remote[0 : min(size, 8 + length, MOST_TEXT)]
    elif copy.suffix == ".onnx":
        walk(remote)


def _range(mirror: Mirror, url: str, start: int, stop: int) -> bytes:
    """Return bytes of a file on the hub."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    def ask() -> Any:
        headers = build_hf_headers() | {"Range": f"bytes={start}-{stop - 1}"}
        response = get_session().get(url, headers=headers, follow_redirects=True)
        hf_raise_for_status(response)
        return response

    response = _asked(mirror.name, ask)
    whole = response.status_code != PARTIAL and not (start == 0 and len(response.content) == stop)
    if whole or len(response.content) != stop - start:
        message = f"{mirror.name}: the server sends whole files where a range was asked for"
        raise StageError(message, hint="download the repository and scan the folder")
    mirror.requests += 1
    mirror.fetched += stop - start
    return response.content


def _asked(name: str, ask: Callable[[], Any]) -> Any:
    """Ask the hub, and turn its ways to fail into one line each."""
    from huggingface_hub import errors

    try:
        return ask()
    except errors.GatedRepoError:
        hint = "accept its terms on its hub page, then log in with `hf auth login`"
        raise StageError(f"{name}: this model is behind terms of use", hint=hint) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        hint = "check the spelling; a private model needs `hf auth login`"
        raise StageError(f"{name}: no such file or directory here and no such model on the hub", hint=hint) from None
    except errors.OfflineModeIsEnabled:
        message = f"{name}: no such file or directory here, and the hub is switched off"
        raise StageError(message, hint=OFFLINE_HINT) from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an unknown status")
        raise StageError(f"{name}: the hub answered {status}", hint="try again later") from None
    except (errors.HTTPError, OSError):  # pyright: ignore[reportPrivateImportUsage]  # the client's own
        message = f"{name}: no such file or directory here, and the hub cannot be reached"
        raise StageError(message, hint=OFFLINE_HINT) from None
