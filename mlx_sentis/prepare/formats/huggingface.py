"""A Hugging Face data set on disk: `save_to_disk` folders (one set or several splits), Parquet and Arrow files.

Arrow gives every object of a column the same keys and fills the absent ones with null, so nulls inside objects are
taken for absent; an argument that is truly null cannot be told from one that is not there.
Dates become texts; what JSON has no word for (bytes, NaN) is absent.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.jsonl import Item
from weights_bridge.errors import StageError

SUFFIXES = (".parquet", ".arrow")
SAVED, SAVED_SPLITS = "state.json", "dataset_dict.json"
ROWS_PER_BATCH = 1000
INSTALL = "pip install datasets"


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    Attributes:
        place: its folder or its first file.
        batches: reads its rows anew, some at a time.
    """

    place: Path
    batches: Callable[[], Iterator[list[dict[str, Any]]]]

    def items(self) -> Iterator[Item]:
        """Yield every row with its number from 1.

        Raises:
            StageError: the files are damaged.
        """
        number = 0
        try:
            for batch in self.batches():
                for row in batch:
                    number += 1
                    yield number, _plain(row)
        except StageError:
            raise
        except Exception as error:  # pyarrow raises many kinds for a damaged file
            raise _unreadable(self.place, error) from error


def is_dataset(path: Path) -> bool:
    """Tell whether a path is a data set that the `datasets` library or pyarrow wrote."""
    if path.is_file():
        return path.suffix.lower() in SUFFIXES
    return any((path / name).is_file() for name in (SAVED, SAVED_SPLITS)) or bool(_files(path))


def open_dataset(path: Path) -> dict[str, Split]:
    """Return the splits of a data set by the names it gives them; one without splits is named by the empty text.

    Raises:
        StageError: a library is missing, or the data set cannot be read.
    """
    if any((path / name).is_file() for name in (SAVED, SAVED_SPLITS)):
        return _saved(path)
    groups: dict[str, list[Path]] = {}
    for file in [path] if path.is_file() else _files(path):
        name = file.stem.partition("-")[0]  # train-00000-of-00002
        groups.setdefault("" if path.is_file() or name.isdecimal() or name in ("data", "part") else name, []).append(
            file
        )
    if not groups:
        raise StageError(
            f"{path}: no Parquet or Arrow file in it", hint="`save_to_disk` of datasets makes such a folder"
        )
    _library("pyarrow.parquet", path)
    return {name: Split(files[0], partial(_tables, files)) for name, files in groups.items()}


def _files(folder: Path) -> list[Path]:
    inside = [file for place in (folder, folder / "data") for file in sorted(place.glob("*")) if file.is_file()]
    return [file for file in inside if file.suffix.lower() in SUFFIXES]


def _library(name: str, path: Path) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        message = f"{path}: a Hugging Face data set, and the library that reads it is not installed"
        raise StageError(message, hint=f"{INSTALL}, or export the rows as JSON lines") from None


def _saved(path: Path) -> dict[str, Split]:
    datasets = _library("datasets", path)
    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise _unreadable(path, error) from error
    splits = found if isinstance(found, dict) else {"": found}
    return {
        name: Split(path / name if name else path, partial(_batches, one.with_format(None)))
        for name, one in splits.items()
    }


def _batches(dataset: Any) -> Iterator[list[dict[str, Any]]]:
    for columns in dataset.iter(batch_size=ROWS_PER_BATCH):
        names, cells = list(columns), zip(*columns.values(), strict=True)
        yield [dict(zip(names, row, strict=True)) for row in cells]


def _tables(files: list[Path]) -> Iterator[list[dict[str, Any]]]:
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    for file in files:
        if file.suffix.lower() == ".parquet":
            with pyarrow.parquet.ParquetFile(file) as opened:
                for batch in opened.iter_batches(ROWS_PER_BATCH):
                    yield batch.to_pylist()
            continue
        with pyarrow.memory_map(str(file)) as source:
            for batch in _arrow(pyarrow, source):
                yield batch.to_pylist()


def _arrow(pyarrow: Any, source: Any) -> Iterator[Any]:
    """Yield the batches of an Arrow file in either of its two layouts."""
    try:
        reader = pyarrow.ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        source.seek(0)
        yield from pyarrow.ipc.open_stream(source)
        return
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def _unreadable(path: Path, error: Exception) -> StageError:
    why = str(error).partition("\n")[0] or type(error).__name__
    return StageError(f"{path}: the data set cannot be read: {why}", hint="save it again, or export it as JSON lines")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        plain = {str(key): _plain(item) for key, item in value.items()}
        return {key: item for key, item in plain.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time | decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None
