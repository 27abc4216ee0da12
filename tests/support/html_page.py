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
        addresses = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in addresses]
        self.open += [tag] * (tag not in self.VOID)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open)

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
