"""What mkdocs does not do by itself: navigation that follows the folders, and pages of the repository's root.

mkdocs calls the functions `on_…` while it builds (`hooks:` in mkdocs.yml)."""

from __future__ import annotations

import logging
import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_logger = logging.getLogger("mkdocs.hooks.docs_site")
FROM_ROOT = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "explanation/security.md",
}
"""Pages that stand in the root because people look for them there, and where the site has them."""
ELSEWHERE = {"README.md": "index.md"}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)?(?P<anchor>#[^)]*)?\)")
_FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(?P<address>(?:https?:)?//[^"'\s>]+)""")
_FENCED = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```$", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the root's pages in, and make the navigation of what is there."""
    for name, place in FROM_ROOT.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, place, content=(ROOT / name).read_text(encoding="utf-8")))
    pages = [file.src_uri for file in files.documentation_pages()]
    nav, listed = _present(config.nav or [], pages)
    config.nav = _with_unlisted(nav, [page for page in pages if page not in listed])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/ go to the same page of the site; of what the site does not have, only the name stays."""
    there = _repository_path(page.file.src_uri)
    kept: list[str] = []

    def keep(block: re.Match[str]) -> str:
        kept.append(block.group())
        return f"\0{len(kept) - 1}\0"

    def led(link: re.Match[str]) -> str:
        return _led(link, there, page.file.src_uri)

    text = _LINK.sub(led, _FENCED.sub(keep, markdown))
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page that would fetch something from elsewhere when it is read is a warning, and so an error."""
    for found in _FETCHED.finditer(output):
        _logger.warning("%s would fetch %s", page.file.src_uri, found["address"])
    return output


def _repository_path(uri: str) -> str:
    """Where a page of the site is in the repository."""
    return next((name for name, place in FROM_ROOT.items() if place == uri), f"docs/{uri}")


def _led(link: re.Match[str], there: str, uri: str) -> str:
    target = link["target"]
    if target is None or re.match(r"[a-z]+:", target):
        return link.group()
    path = posixpath.normpath(posixpath.join(posixpath.dirname(there), target))
    place = FROM_ROOT.get(path) or ELSEWHERE.get(path)
    if place is None and path.startswith("docs/"):
        place = path.removeprefix("docs/")
    if place is not None:
        relative = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"[{link['text']}]({relative}{link['anchor'] or ''})"
    if not (ROOT / path).exists():
        return link.group()  # mkdocs says that it leads nowhere
    return link["text"] if path in link["text"] else f"{link['text']} (`{path}`)"


def _present(nav: list[Any], pages: list[str]) -> tuple[list[Any], set[str]]:
    """The navigation without pages that are not there yet, patterns filled in; and what it names."""
    made: list[Any] = []
    listed: set[str] = set()
    for entry in nav:
        if isinstance(entry, str):
            found = [page for page in sorted(pages) if fnmatch(page, entry)]
            made += found
            listed |= set(found)
        else:
            ((title, inside),) = entry.items()
            below, found_below = _present([inside] if isinstance(inside, str) else inside, pages)
            listed |= found_below
            if below:
                made.append({title: below[0] if isinstance(inside, str) else below})
    return made, listed


def _with_unlisted(nav: list[Any], unlisted: list[str]) -> list[Any]:
    """Each page that nobody has put into the order goes to the end of the section that has its folder's pages."""
    for page in unlisted:
        folder = posixpath.dirname(page)
        _section_of(nav, folder).append(page)
    return nav


def _section_of(nav: list[Any], folder: str) -> list[Any]:
    for entry in nav:
        if isinstance(entry, dict):
            (inside,) = entry.values()
            if isinstance(inside, str):
                continue
            if folder and any(isinstance(one, str) and posixpath.dirname(one) == folder for one in inside):
                return inside
            deeper = _section_of(inside, folder)
            if deeper is not inside:
                return deeper
    return nav
