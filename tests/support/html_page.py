"""A page as its reader sees it: text, tags and addresses."""

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Text, tags and addresses of a page; unclosed tags are an error."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            v or ""
            for k, v in attrs
            if k in ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(path: Path) -> Page:
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    return page
