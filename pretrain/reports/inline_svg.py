"""Matplotlib's SVG as part of a page: it follows the colours and the font of the page.

Text stays text: it can be selected, searched and read aloud, and a letter that Matplotlib's font
lacks is drawn in another font of the browser.
"""

import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

_FONTS = re.compile(r"'DejaVu Sans'.*?sans-serif")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def svg_of(figure: Figure) -> str:
    """Return a figure as the text of an SVG file."""
    file = io.StringIO()
    # Text is written as text; names inside the file do not depend on chance.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "picture"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def inline_svg(svg: str, title: str, name: str, variables: Mapping[str, str]) -> str:
    """Return an SVG file of Matplotlib as an element of a page.

    Args:
        svg: the file.
        title: read aloud in place of the picture.
        name: begins its ids; no other picture of the page has it.
        variables: the CSS variable of each colour, such as "#ffffff": "--paper".
    """
    root = ElementTree.fromstring(svg)
    for child in [*root]:
        if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}defs") and not child.findall(".//*[@id]"):
            root.remove(child)  # `defs` without an id holds a style sheet, which the page has
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    described = ElementTree.Element(f"{{{SVG}}}title")
    described.text = title
    root.insert(0, described)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _in_page(key, value, name, variables))
    return ElementTree.tostring(root, encoding="unicode")


def _in_page(key: str, value: str, name: str, variables: Mapping[str, str]) -> str:
    """Return the value of an attribute with ids, font and colours of the page."""
    if key == "id":
        return f"{name}-{value}"
    if key == f"{{{XLINK}}}href":
        return f"#{name}-{value.removeprefix('#')}"
    if key in ("style", "clip-path", "fill", "stroke"):
        value = _REFERENCE.sub(rf"url(#{name}-\1)", value)
        value = _FONTS.sub("system-ui, sans-serif", value)
        return _COLOUR.sub(lambda found: _colour(found[0], variables), value)
    return value


def _colour(colour: str, variables: Mapping[str, str]) -> str:
    return f"var({variables[colour]})" if colour in variables else colour
