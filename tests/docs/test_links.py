"""Links between the pages lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_link_leads_to_a_file_and_a_heading():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("paper/*.md")]:
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), (page.name, link)
            titles = re.findall(r"^#+ (.*)", target.read_text(), re.M) if anchor else []
            names = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert not anchor or anchor in names, (page.name, link)
