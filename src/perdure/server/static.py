"""The files of the web UI: compressed once, served below the hash of all of them, cached for ever."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from .http import Answer, Request

MEDIA: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}
IMMUTABLE: Final = ("cache-control", "public, max-age=31536000, immutable")
IMPORTS: Final = re.compile(r'^(?:import|export) [^;]*?from "(\.[^"]+)"', re.MULTILINE)
"""What a module loads before it runs. A page that another one loads later, by `import()`, is not meant."""
STYLES: Final = ("tokens.css", "app.css", "more.css", "pages.css")
"""In this order they are one file: the first paint waits for it."""
PUBLIC: Final = ("app.css", "more.css", "tokens.css", "login.js", "theme.js")
"""What the login page needs: strangers get these below /login/."""


class Static:
    @cached_property
    def files(self) -> dict[str, bytes]:
        found = dict(_walk(files("perdure") / "ui"))
        found["all.css"] = b"\n".join(found[name] for name in STYLES)
        return found

    @cached_property
    def hash(self) -> str:
        whole = hashlib.sha256()
        for name in sorted(self.files):
            whole.update(name.encode() + b"\x00" + self.files[name])
        return whole.hexdigest()[:12]

    @cached_property
    def _zipped(self) -> dict[str, bytes]:
        return {}

    def index(self, request: Request) -> Answer:
        """The page of all pages. It names all modules that its address needs, so that they are asked for at once."""
        first, _, rest = request.path.strip("/").partition("/")
        name = {"": "dashboard", "instances": "instance" if rest else "instances"}.get(first, first)
        base = self._base(request)
        links = [f'<link rel="modulepreload" href="{base}/{each}">' for each in self._needed(name)]
        return self.page(request, "index.html", preload="\n".join(links))

    def _needed(self, page: str) -> list[str]:
        if page not in self._modules:
            found: dict[str, None] = {}
            ahead = ["main.js", *(name for name in [f"pages/{page}.js"] if name in self.files)]
            while ahead:
                name = ahead.pop(0)
                if name not in found:
                    found[name] = None
                    near = IMPORTS.findall(self.files[name].decode())
                    ahead += [posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in near]
            if f"pages/{page}.js" not in self.files:
                return [*found]  # any text may stand in an address: only pages are kept
            self._modules[page] = [*found]
        return self._modules[page]

    def _base(self, request: Request) -> str:
        return f"{request.root}/ui/{self.hash}"

    @cached_property
    def _modules(self) -> dict[str, list[str]]:
        return {}

    def file(self, request: Request, name: str) -> Answer | None:
        body = self.files.get(name)
        return None if body is None else self._answer(request, name, body, [IMMUTABLE])

    def page(self, request: Request, name: str, status: int = 200, **more: str) -> Answer:
        """An HTML page. Its files are named below the root of the app, wherever that is mounted.

        `more` fills the places of the page of these names.
        """
        text = self.files[name].decode()
        for place, value in {"base": self._base(request), "root": request.root, **more}.items():
            text = text.replace(f"{{{place}}}", value)
        return Answer(status, text.encode(), MEDIA["html"], [("cache-control", "no-cache")])

    def _answer(self, request: Request, name: str, body: bytes, headers: list[tuple[str, str]]) -> Answer:
        media = MEDIA.get(name.rpartition(".")[2], "application/octet-stream")
        if "gzip" in request.headers.get("accept-encoding", "") and len(body) > 500:
            if name not in self._zipped:
                self._zipped[name] = gzip.compress(body, 9, mtime=0)
            zipped = [*headers, ("content-encoding", "gzip"), ("vary", "accept-encoding")]
            return Answer(200, self._zipped[name], media, zipped)
        return Answer(200, body, media, headers)


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir() and not each.name.startswith("__"):
            found += _walk(each, f"{prefix}{each.name}/")
        elif each.is_file() and not each.name.endswith((".py", ".pyc")):
            found.append((f"{prefix}{each.name}", each.read_bytes()))
    return found
