"""The site built by `make site`: every internal link has a target, and nothing is loaded from another host."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

import burtorch as bt


class Page(HTMLParser):
    """The ids, links and loaded resources of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.resources = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.add(attrs["id"])
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        for name in ("src", "href"):
            if tag in ("script", "link", "img", "iframe", "source") and attrs.get(name):
                self.resources.append(attrs[name])


@pytest.fixture(scope="module")
def site(root):
    generator = shutil.which("zensical") or shutil.which(str(root / ".venv-release" / "bin" / "zensical"))
    if generator is None:
        pytest.skip("the generator of the site is not installed: run 'make site'")
    command = [sys.executable, str(root / "scripts" / "site.py"), "--zensical", generator]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "target" / "site" / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_inside_the_site_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            inside = target.is_file() and site.resolve() in target.parents
            if not inside or (parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids):
                broken.append((path.relative_to(site).as_posix(), link))
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_nothing_is_loaded_from_another_host(pages):
    assert {link for page in pages.values() for link in page.resources if urlsplit(link).netloc} == set()


def test_every_public_name_has_an_entry(pages):
    ids = {name for path, page in pages.items() if path.parent.name == "api" for name in page.ids}
    expected = {f"bt{name.lower()}" for name in bt.__all__ if callable(getattr(bt, name))}
    assert expected - ids == set()


def test_the_search_knows_the_manual_and_the_reference(site):
    found = json.loads((site / "search.json").read_text("utf-8"))
    places = {item["location"].partition("#")[0] for item in found["items"]}
    assert {"docs/values.html", "docs/transforms.html", "api/functions.html", "api/graph.html"} <= places


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Quiet(SimpleHTTPRequestHandler):
    """A server without a log."""

    def log_message(self, format, *args):
        pass


@pytest.fixture
def address(site):
    """The address of a local server with the site."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def opened(address, profile):
    """The visible text of a page in a browser, and its console messages."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=3000"]
    command = [CHROMIUM, *options, f"--user-data-dir={profile}", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_shows_pages_and_has_nothing_to_say(site, address, tmp_path):
    for name in (
        "index.html",
        "docs/values.html",
        "docs/from-pytorch.html",
        "api/graph.html",
        "benches/record/index.html",
    ):
        shown, console = opened(f"{address}/{name}", tmp_path)
        assert console == [], name
        assert all(part in shown for part in ("<h1", "md-search")), name
    (site / "wrong.html").write_text("<script>nothing()</script>", "utf-8")
    try:
        assert "nothing is not defined" in opened(f"{address}/wrong.html", tmp_path)[1][0]
    finally:
        (site / "wrong.html").unlink()
