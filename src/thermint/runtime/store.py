"""One file for a result or a checkpoint: arrays and plain values; reading it runs nothing that is in it.

The file is NumPy's ``.npz``, a ZIP of arrays that any tool reads, and after it a line with its SHA-256. One file, not a
folder of them, so that replacing it is one step for the file system: there is always an old state or a new one, never
half of each. The first array, ``tree``, is JSON: how the others make up the value. Reading builds only plain values,
arrays, tables and the classes marked by `storable`; there is no pickle in a file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

T = TypeVar("T")

MARK = b"\nthermint sha256 "
_KINDS: dict[str, type] = {}  # the classes that may be in a file, by name


class DamagedError(ValueError):
    """A file is damaged, or not one of thermint's."""


def storable(kind: type[T]) -> type[T]:
    """Allow values of a NamedTuple or dataclass in files, under the name of the class.

    Raises:
        ValueError: another class has this name.
    """
    known = _KINDS.setdefault(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{kind} cannot be stored: {known} has the same name.")
    _KINDS[kind.__name__] = kind
    return kind


def write(path: Path, value: Any) -> None:
    """Write a value to a file, in one step: whatever happens, the file is the old one or the new one.

    Raises:
        OSError: it could not be written; the old file is still there.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _encode(value, arrays)
    packed = io.BytesIO()
    np.savez(packed, tree=np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    content = packed.getbuffer()
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.write(MARK + hashlib.sha256(content).hexdigest().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Have a renamed file survive a power cut under its new name, where the system can."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        pass
    finally:
        os.close(opened)


def read(path: Path) -> Any:
    """Read what `write` has written.

    Raises:
        DamagedError: the file is damaged or of another kind.
        OSError: there is no such file, or it cannot be read.
    """
    return parse(path.read_bytes(), path)


def parse(whole: bytes, path: Path, check: Callable[[dict[str, Any]], None] = lambda _: None) -> Any:
    """Rebuild the value in the contents of a file.

    Args:
        whole: the contents.
        path: of the file, for messages.
        check: if the value is a dictionary, this is given its plain entries before anything is built, and may raise.
    """
    content, mark, digest = whole[: -len(MARK) - 65], whole[-len(MARK) - 65 : -65], whole[-65:]
    if mark != MARK or digest != hashlib.sha256(content).hexdigest().encode() + b"\n":
        raise DamagedError(
            f"{path} is damaged, cut short, or not a file of thermint's: its contents do not have the checksum at its "
            "end. Restore it from a copy, or remove it and start again."
        )
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            tree, arrays = json.loads(file["tree"].tobytes()), dict(file)
        entries = dict(tree["items"]) if tree["kind"] == "dict" else {}
    except Exception as error:  # someone has made up the file: anything may be wrong with it
        raise _unknown(path, error) from error
    check(entries)
    try:
        return _decode(tree, arrays)
    except Exception as error:
        raise _unknown(path, error) from error


def _unknown(path: Path, error: Exception) -> DamagedError:
    return DamagedError(f"{path} is not a file that this version of thermint wrote ({error}).")


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Turn a value into JSON, putting its arrays aside."""

    def encode(inner: Any) -> Any:
        return _encode(inner, arrays)

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, pd.DataFrame):
        columns = {str(name): column.to_numpy() for name, column in value.reset_index().items()}
        return {"kind": "table", "index": str(value.index.name), "columns": {k: encode(v) for k, v in columns.items()}}
    if type(value) in _KINDS.values():
        named = {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else value._asdict()
        return {"kind": type(value).__name__, "fields": {name: encode(inner) for name, inner in named.items()}}
    if isinstance(value, dict):
        return {"kind": "dict", "items": [[str(name), encode(inner)] for name, inner in value.items()]}
    if isinstance(value, list | tuple):
        return {"kind": "list" if isinstance(value, list) else "tuple", "items": [encode(inner) for inner in value]}
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return {"kind": "words", "items": [str(word) for word in array.ravel()]}
    name = f"a{len(arrays)}"
    arrays[name] = np.array(array)  # a copy: devices may reuse the memory
    return {"kind": "array", "name": name}


def _decode(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Inverse of `_encode`."""

    def decode(inner: Any) -> Any:
        return _decode(inner, arrays)

    if not isinstance(tree, dict):
        return tree
    plain: dict[str, Callable[[], Any]] = {
        "array": lambda: arrays[tree["name"]],
        "words": lambda: np.array(tree["items"], dtype=object),
        "list": lambda: [decode(inner) for inner in tree["items"]],
        "tuple": lambda: tuple(decode(inner) for inner in tree["items"]),
        "dict": lambda: {name: decode(inner) for name, inner in tree["items"]},
        "table": lambda: pd.DataFrame({k: decode(v) for k, v in tree["columns"].items()}).set_index(tree["index"]),
    }
    if tree["kind"] in plain:
        return plain[tree["kind"]]()
    return _KINDS[tree["kind"]](**{name: decode(inner) for name, inner in tree["fields"].items()})
