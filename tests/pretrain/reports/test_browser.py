"""Pages of reports in a browser, at the width of a desk and of a telephone."""

import re
import shutil
import subprocess

import pytest

from finetune.report.page import print_table
from pretrain.__main__ import main
from tests.finetune.report.score_case import write_result
from tests.pretrain.reports.compare.test_report import DROP, POST, arm

CHROMIUM = shutil.which("chromium")
# The page shows all of itself, and then in a frame of a width says how wide it is.
MEASURE = """<script>
for (const part of document.querySelectorAll("details")) part.open = true;
addEventListener("load", () => parent.postMessage(
  `${innerWidth} ${document.documentElement.scrollWidth} ${document.images.length} ` +
  [...document.images].filter(one => one.naturalWidth).length, "*"));
</script>"""
FRAME = """<!DOCTYPE html><p id="found"></p><script>
addEventListener("message", one => { document.getElementById("found").textContent = one.data; });
</script><iframe src="page.html" width="{width}" height="900" style="border: 0"></iframe>"""

pytestmark = [
    pytest.mark.slow("starts a browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no program chromium: apt-get install chromium"),
]


def comparison(folder):
    known = {"frequency_entropy": 6.5}
    name = "an_arm_with_a_name_that_is_longer_than_any_in_the_recipes"
    folders = [
        *arm(folder / "a-folder-with-a-long-name", name, ends=(4.0, 4.1), **known),
        *arm(folder, "post", *POST, ends=(3.9, 4.0), **known),
        *arm(folder, "drop", *DROP, ends=(3.8, 4.2), commit="d" * 40, **known),
    ]
    main(["compare", *map(str, folders), "--note", "x" * 200, "--report", str(folder / "report")])
    return folder / "report" / "index.html"


def scores(folder):
    for task in ("MNLI", "QNLI", "QQP", "RTE", "SST-2", "WNLI", "CoLA", "MRPC", "STS-B"):
        for rate in (1e-3, 2e-3):
            write_result(folder / "sweep", task, 0.5 + rate, rate=rate, model="m" * 60)
    print_table([folder / "sweep"], to=folder / "report")
    return folder / "report" / "index.html"


@pytest.mark.parametrize("write", [comparison, scores])
@pytest.mark.parametrize("width", [1400, 400])
def test_a_page_fits_the_window_and_the_browser_has_no_complaint(tmp_path, write, width):
    page = write(tmp_path).read_text()
    (tmp_path / "page.html").write_text(page.replace("</body>", f"{MEASURE}</body>"))
    (tmp_path / "frame.html").write_text(FRAME.replace("{width}", str(width)))
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=5000", (tmp_path / "frame.html").as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'id="found">(\d+) (\d+) (\d+) (\d+)<', done.stdout)
    inner, needed, images, drawn = map(int, found.groups())
    assert inner == width and needed <= width
    assert images == drawn >= 3
    assert "CONSOLE" not in done.stderr
