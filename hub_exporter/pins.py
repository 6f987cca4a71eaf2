"""Which versions a backend is exported with: what we lock, what the engine was tested with, and where they differ.

`pins/<backend>.in` names the direct packages exactly, `pins/<backend>.txt` is compiled from it for every platform;
installed as `-r x.in -c x.txt`, one pair serves CPU, CUDA and macOS builds. What the engine was tested with stands in
its classes as literals, and is read from its source: importing it would load torch.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import HubExporterError, UsageError
from hub_exporter.records import Difference, EngineVersions

_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;]+)")

# ── What we lock ──────────────────────────────────────────────────────────────────────────────────────────────────


def folder() -> Path:
    """Where the pins are: `HUB_EXPORTER_PINS`, else those of the checkout or of the installed package."""
    if chosen := os.environ.get("HUB_EXPORTER_PINS"):
        return Path(chosen).absolute()
    here = Path(__file__).parent
    return next((place for place in (here / "pins", here.parent / "pins") if place.is_dir()), here / "pins")


def files(backend: str) -> tuple[Path, Path]:
    """The pair of a backend: its direct packages, and the lock. Raises UsageError where there is none."""
    pair = (folder() / f"{backend}.in", folder() / f"{backend}.txt")
    if not all(path.is_file() for path in pair):
        raise UsageError(
            f"There are no pins for `{backend}` in {folder()}",
            hint=f"Write `{pair[0].name}` and compile `{pair[1].name}` from it, as `make pins` does",
        )
    return pair


def digest(backend: str) -> str:
    """sha256 over the pins of a backend, comments left out: whether files were made with the same packages."""
    direct_file, lock = files(backend)
    lines = [*_lines(direct_file), "", *_lines(lock)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def locked(backend: str) -> dict[str, str]:
    """Package -> version, of everything in the lock; names as PyPI writes them (`onnx-ir`)."""
    return pinned(files(backend)[1])


def direct(backend: str) -> dict[str, str]:
    """Package -> version, of what the backend names itself."""
    return pinned(files(backend)[0])


def pinned(file: Path) -> dict[str, str]:
    """Package -> version, of the exact lines of a file."""
    return pins_in(_lines(file))


def pins_in(lines: Iterable[str]) -> dict[str, str]:
    """Package -> version, of lines such as `onnx==1.23.2 ; sys_platform == 'linux'`; others are left out."""
    found = filter(None, map(_PIN.match, lines))
    return {normalized(match[1]): match[2] for match in found}


def differences() -> tuple[Difference, ...]:
    """The deliberate ones; none for pins of one's own that explain nothing."""
    path = folder() / "differences.toml"
    if not path.is_file():
        return ()
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")).get("difference", []), tuple[Difference, ...])


def _lines(path: Path) -> Iterator[str]:
    """Requirements of a file and of those that it includes, without comments."""
    for line in path.read_text("utf-8").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if text.startswith("-r "):
            yield from _lines(path.parent / text.removeprefix("-r ").strip())
        elif text:
            yield text


def normalized(name: str) -> str:
    """`onnx_ir` -> `onnx-ir`"""
    return re.sub(r"[-_.]+", "-", name).lower()


# ── What the engine was tested with ───────────────────────────────────────────────────────────────────────────────


def engine_version() -> str:
    """Of the installed transformers. Raises HubExporterError if there is none."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError as error:
        raise HubExporterError("transformers is not installed", hint="Name a release with `--transformers`") from error


def engine_source() -> Path:
    """Folder of the installed `transformers.exporters`; looked up, not imported. Raises HubExporterError."""
    spec = importlib.util.find_spec("transformers")
    places = [Path(place) / "exporters" for place in (spec.submodule_search_locations if spec else None) or ()]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise HubExporterError(
            "The installed transformers has no exporters", hint="They came with 5.13; hub-exporter needs 5.23"
        )
    return found


@functools.cache
def tested(source: Path) -> dict[str, tuple[EngineVersions, ...]]:
    """Backend -> the packages that the engine's exporter for it and its quantizers name.

    `source` is a folder of `transformers.exporters`. Raises HubExporterError where it is not written as expected.
    """
    classes = _classes(source)
    by_format: dict[str, list[EngineVersions]] = {}
    for name, cls in classes.items():
        for export_format in _formats(cls, classes):
            by_format.setdefault(export_format, []).extend(_named_by(name, classes))
    if not by_format:
        raise HubExporterError(
            f"{source} says nowhere what it was tested with", hint="It may be older than 5.13, or changed its form"
        )
    return {name: tuple(by_format.get(backend.format, ())) for name, backend in BACKENDS.items()}


def expected(named: Iterable[EngineVersions]) -> dict[str, tuple[str, ...]]:
    """Package -> the versions that count as tested: the exporter's own, else those of the quantizers."""
    found: dict[str, dict[bool, list[str]]] = {}
    for entry in named:
        if entry.tested is not None:
            found.setdefault(entry.package, {}).setdefault(entry.quantizer, []).append(entry.tested)
    return {package: tuple(dict.fromkeys(by[min(by)])) for package, by in found.items()}


@dataclass(frozen=True, kw_only=True)
class _Class:
    """A class of the engine: what it assigns, and its bases by name."""

    file: str
    bases: tuple[str, ...]
    values: Mapping[str, ast.expr]
    """Attribute -> its value, unread."""


def _classes(source: Path) -> dict[str, _Class]:
    files = [source / "base.py", *sorted(source.glob("exporter_*.py")), *sorted(source.glob("quantizers/*.py"))]
    found = {}
    for file in filter(Path.is_file, files):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                found[node.name] = _Class(file=file.stem, bases=bases, values=dict(_assigned(node)))
    return found


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def _formats(cls: _Class, classes: Mapping[str, _Class]) -> tuple[str, ...]:
    """Formats that a class exports (by the name of its file) or quantizes; none for a base."""
    if "tested_versions" not in cls.values:
        return ()
    if cls.file.startswith("exporter_"):
        return (cls.file.removeprefix("exporter_"),)
    formats = cls.values.get("supported_formats")
    return tuple(_value(formats, classes)) if formats is not None else ()


def _named_by(name: str, classes: Mapping[str, _Class]) -> Iterator[EngineVersions]:
    required, versions, minimums = (
        _attribute(name, attribute, classes) for attribute in ("required_packages", "tested_versions", "min_versions")
    )
    for package in dict.fromkeys([*(required or ()), *(versions or {}), *(minimums or {})]):
        yield EngineVersions(
            package=normalized(package),
            owner=name,
            quantizer=not classes[name].file.startswith("exporter_"),
            tested=(versions or {}).get(package),
            minimum=(minimums or {}).get(package),
        )


def _attribute(name: str, attribute: str, classes: Mapping[str, _Class]) -> Any:
    """The value that a class has, its own or inherited; `None` where no class that we know assigns it."""
    cls = classes.get(name)
    if cls is None:
        return None
    if attribute in cls.values:
        return _value(cls.values[attribute], classes)
    found = (_attribute(base, attribute, classes) for base in cls.bases)
    return next((value for value in found if value is not None), None)


def _value(node: ast.expr, classes: Mapping[str, _Class]) -> Any:
    """A literal; also `{**Base.tested_versions, "onnx": "1.23.0"}` and `(ExportFormat.ONNX,)`."""
    match node:
        case ast.Dict():
            merged: dict[str, str] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                merged |= _value(value, classes) if key is None else {_value(key, classes): _value(value, classes)}
            return merged
        case ast.Tuple() | ast.List():
            return [_value(item, classes) for item in node.elts]
        case ast.Attribute(value=ast.Name(id="ExportFormat"), attr=member):
            return member.lower()
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
            return _attribute(owner, attribute, classes) or {}
        case ast.Constant():
            return node.value
    raise HubExporterError(
        f"The engine's versions are written in a way that cannot be read: {ast.unparse(node)}",
        hint="Report this: hub-exporter has to learn it",
    )
