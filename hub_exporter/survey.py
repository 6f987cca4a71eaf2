"""`hub-exporter pins`: for each backend what the engine was tested with, what is locked, and what is newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hub_exporter import environments, installer, pins
from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import HubExporterError
from hub_exporter.records import BackendPins, EngineVersions, PinnedPackage, Survey


def survey(transformers: str | None = None) -> Survey:
    """Of the engine that is installed, or of a release. Raises HubExporterError where that cannot be read; without a
    network only the newest versions are missing."""
    source = environments.released_engine(transformers) if transformers else pins.engine_source()
    found = [_backend(backend, named) for backend, named in pins.tested(source).items()]
    newest, unknown = _newest({package.package for one in found for package in one.packages})
    return Survey(
        engine=transformers or pins.engine_version(),
        backends=tuple(_with_newest(one, newest) for one in found),
        unknown=unknown,
    )


def _backend(backend: str, named: Iterable[EngineVersions]) -> BackendPins:
    named = tuple(named)
    lock, tested = pins.locked(backend), pins.expected(named)
    reasons = {one.package: one for one in pins.differences() if backend in one.backends}
    packages = []
    for name in {**tested, **pins.direct(backend)}:
        versions = tested.get(name, ())
        known = [one.tested for one in named if one.package == name and one.quantizer and one.tested]
        why = reasons.get(name)
        explained = why and (why.locked, why.tested) == (lock.get(name), versions)
        packages.append(
            PinnedPackage(
                package=name,
                tested=versions,
                quantizers=tuple(version for version in dict.fromkeys(known) if version not in versions),
                locked=lock.get(name),
                reason=why.reason if why and explained else None,
            )
        )
    return BackendPins(
        backend=backend, pins=pins.digest(backend), packages=tuple(packages), channels=_channels(backend)
    )


def _channels(backend: str) -> dict[str, dict[str, str]]:
    """Sets without a lock, beside the pins of a backend: what they have and the backend's own set has not."""
    default = pins.direct(backend)
    return {
        path.stem: {name: version for name, version in pins.pinned(path).items() if default.get(name) != version}
        for path in sorted(pins.folder().glob(f"{backend}-*.in"))
        if path.stem not in BACKENDS
    }


def _newest(packages: Iterable[str]) -> tuple[dict[str, str], str | None]:
    try:
        return installer.newest(sorted(packages)), None
    except HubExporterError as error:
        return {}, str(error)


def _with_newest(found: BackendPins, newest: Mapping[str, str]) -> BackendPins:
    packages = [msgspec.structs.replace(one, newest=newest.get(one.package)) for one in found.packages]
    return msgspec.structs.replace(found, packages=tuple(packages))
