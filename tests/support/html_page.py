"""The parts of an HTML page, for the tests of pages."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Ids, references and tags of a page; complains about tags that do not close."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.refs: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in self.VOID else [tag]
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if attributes.get("id") else []
        self.refs += [value for key in ("href", "src") if (value := attributes.get(key)) is not None]
        self.images += [attributes] if tag == "img" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open and self.open[-1] in ("style", "script") else data
