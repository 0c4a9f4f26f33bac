"""Reads a page as a browser would, for tests."""

import html.parser

VOID = {"meta", "link", "input", "br"}


class Page(html.parser.HTMLParser):
    """Elements with their attributes, links, texts, and tables as rows of texts; an element left open is an error."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts, self.tables = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def links(self):
        return [value for _, found in self.elements for name, value in found.items() if name in ("src", "href")]

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data
        self.texts.append(data)
