"""Manifest files: the world that they describe, with its code or without."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perdure.cells import load
from perdure.cells.bound_manifest import BoundManifest, limits_of
from perdure.cells.manifest import Manifest
from perdure.errors import BadDefinition, BadManifest, CallerError


def load_manifest(path: str | os.PathLike[str], *, limits: Mapping[str, int] | None = None) -> BoundManifest:
    """The world of a manifest file (JSON or YAML), ready to run: `perdure.open(url, workflows=[load_manifest(path)])`.

    Each cell names its reducer, `impl: module:function`, which is imported: a cell that agrees with the manifest, or a
    plain function that takes and returns `perdure.Datum`s. limits: as those of `perdure.manifest`.
    """
    kept = limits_of(limits)
    text, manifest = _read(path)
    try:
        return BoundManifest(manifest, limits=kept)
    except (BadDefinition, BadManifest) as error:  # it disagrees with its code
        load.locate(error, text, os.fspath(path))
        raise


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """What a manifest file says, checked; no code is imported."""
    return _read(path)[1]


def _read(path: str | os.PathLike[str]) -> tuple[str, Manifest]:
    source = os.fspath(path)
    forms = {".json": load.from_json, ".yaml": load.from_yaml, ".yml": load.from_yaml}
    read = forms.get(Path(source).suffix.lower())
    if read is None:
        raise CallerError(f"{source}: a manifest is a file that ends in .json, .yaml or .yml")
    try:
        text = Path(source).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CallerError(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise CallerError(f"{source} cannot be read: {error.strerror}") from None
    return text, read(text, source)
