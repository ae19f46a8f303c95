"""Links lead somewhere; docs/PAPERS.md names what exists, and leaves nothing out."""

import re
from pathlib import Path

from pretrain.analysis.catalog import ANALYSES
from pretrain.config.recipe_files import recipe_files

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "PAPERS.md").read_text()
YOURS = {"adapt", "mini_hour", "one_gpu_day", "small_gpu_hour"}
SHARED = {"cpu", "tiny_cpu", *YOURS}  # what other recipes extend, that of tests, and for any text


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)[1]


def test_every_recipe_is_a_system_of_the_papers_and_every_system_a_recipe():
    rows = [line.split("|") for line in section("Systems").splitlines() if line.startswith("| ")]
    cells = " ".join(cell for row in rows[1:] for cell in row[4:6])
    named = {name for name in re.findall(r"`(\w+)`", cells)}
    assert named == set(recipe_files()) - SHARED


def test_every_analysis_of_the_papers_is_a_row():
    named = set(re.findall(r"tupelo analyse (\w+)", section("Figures")))
    assert named == set(ANALYSES)


def test_the_tests_that_are_named_exist():
    paths = re.findall(r"`(tests/[\w/.]+)`", TEXT)
    assert paths and all((ROOT / path).exists() for path in paths)


def test_every_link_leads_to_a_file_and_a_heading():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("paper/*.md")]:
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), (page.name, link)
            titles = re.findall(r"^#+ (.*)", target.read_text(), re.M) if anchor else []
            names = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert not anchor or anchor in names, (page.name, link)
