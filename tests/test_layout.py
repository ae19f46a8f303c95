"""The rules on who may import whom, checked rather than hoped for."""

import ast
import functools
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from pretrain.convert.exports.hf_format import CODE_FILES

ROOT = Path(__file__).parents[1]
EXPORTED = ROOT / "pretrain" / "convert" / "exports" / "hf_code"
PACKAGES = {
    "data_prep": set(),
    "pretrain": {"data_prep"},
    "finetune": {"data_prep", "pretrain"},
    "tupelo": {"data_prep", "pretrain", "finetune"},
}
# Inside a package: a folder, or a file beside the folders, imports only those of earlier lines.
LEVELS = {
    "data_prep": [
        {"files", "settings"},
        {"sources", "shards", "removed"},
        {"tokenizer", "masking", "command_line"},
        {"text"},
        {"pipeline"},
        {"commands"},
    ],
    "pretrain": [
        {"config"},
        {"model", "distributed", "reports"},
        {"schedules", "data", "checkpoint"},
        {"engine", "convert"},
        {"analysis", "train"},
        {"commands"},
        {"__main__"},
    ],
    "finetune": [
        {"protocol", "tasks", "results"},
        {"training", "report"},
        {"models"},
        {"sweep"},
        {"commands"},
    ],
}
# Whoever deletes lowers a number. What is new takes the place of something, or raises one, in a
# commit of its own that says why.
BUDGET = {
    "lines of the packages": 31_088,
    "lines of benchmarks": 1_373,
    "lines of tests": 27_001,
    "words of docs": 13_522,
    "words of a page": 1_500,
}


@functools.cache
def imported(file):
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # Code that is copied out of the package cannot name it.
            assert node.level == 0 or file.parent == EXPORTED, f"{file} imports relatively"
            names.append(node.module if node.level == 0 else f"{EXPORTED.name}.{node.module}")
    return names


def files(package):
    return sorted((ROOT / package).rglob("*.py"))


def test_packages_depend_in_one_direction():
    for package, allowed in PACKAGES.items():
        for file in files(package):
            reached = {name.split(".")[0] for name in imported(file)} & set(PACKAGES)
            assert reached <= allowed | {package}, f"{file} imports {reached - allowed}"


@pytest.mark.parametrize(
    ("library", "only"),
    [
        ("deepspeed", {"pretrain/distributed/deepspeed_library.py"}),
        (
            "h5py",
            {"data_prep/shards/format.py", "data_prep/shards/external.py"},
        ),  # our format, and theirs
        (
            "triton",
            {"pretrain/model/kernels/triton_kernels.py", "pretrain/model/kernels/triton_tiles.py"},
        ),
    ],
)
def test_these_files_alone_touch_the_library(library, only):
    touching = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in files(package)
        if any(name.split(".")[0] == library for name in imported(file))
    }
    assert touching == only


def modules(package):
    """Map each module of a package to the modules of the package that it imports."""
    paths = [file for file in files(package) if file.name != "__init__.py"]
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): {
            name for name in imported(file) if name.startswith(f"{package}.")
        }
        for file in paths
    }


@pytest.mark.parametrize("package", LEVELS)
def test_folders_import_only_folders_of_lower_levels(package):
    level = {folder: index for index, group in enumerate(LEVELS[package]) for folder in group}
    for module, names in modules(package).items():
        own = module.split(".")[1]
        for name in names:
            other = name.split(".")[1]
            assert other == own or level[other] < level[own], f"{module} imports {name}"


def test_what_a_run_writes_down_knows_nothing_of_its_loop():
    recording = "pretrain.train.recording."
    for module, names in modules("pretrain").items():
        if module.startswith(recording):
            loop = {name for name in names if name.startswith("pretrain.train.")}
            allowed = (recording, "pretrain.train.stability.")
            assert all(name.startswith(allowed) for name in loop), module


def test_no_two_classes_have_one_name():
    files_of = [file for package in PACKAGES for file in files(package)]
    trees = [ast.parse(file.read_text()) for file in files_of]
    names = Counter(
        node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", LEVELS)
def test_no_imports_go_in_a_circle(package):
    TopologicalSorter(modules(package)).prepare()


def test_lines_and_words_stay_within_their_budget():
    def lines(*patterns):
        files = [file for each in patterns for file in ROOT.glob(each)]
        return sum(len(file.read_text().splitlines()) for file in files)

    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    words = {page: len(page.read_text().split()) for page in pages}
    found = {
        "lines of the packages": lines(*(f"{package}/**/*.py" for package in PACKAGES)),
        "lines of benchmarks": lines("benchmarks/**/*.py", "benchmarks/**/*.sh"),
        "lines of tests": lines("tests/**/*.py"),
        "words of docs": sum(words.values()),
        "words of a page": max(n for page, n in words.items() if page.stem != "SETTINGS"),
    }
    assert {name: n for name, n in found.items() if n > BUDGET[name]} == {}


def test_the_model_knows_nothing_of_ranks_devices_or_deepspeed():
    for file in files("pretrain/model"):
        names = set(imported(file))
        forbidden = ("torch.distributed", "torch.cuda", "deepspeed", "logging", "pretrain.engine")
        assert not {name for name in names if name.startswith(forbidden)}, file


def test_exported_code_needs_nothing_but_torch_transformers_and_files_that_go_with_it():
    beside = {Path(name).stem for name in CODE_FILES}
    allowed = {"torch", "transformers"} | sys.stdlib_module_names
    for file in CODE_FILES.values():
        for name in imported(file):
            room, _, module = name.rpartition(".")
            if room not in {EXPORTED.name, "pretrain.model"} or module not in beside:
                assert name.split(".")[0] in allowed, file
            if file.parent != EXPORTED:  # the trainer's own files: a run needs no transformers
                assert room != EXPORTED.name and not name.startswith("transformers"), file
    own = {file for file in EXPORTED.glob("*.py") if file.name != "__init__.py"}
    assert own <= set(CODE_FILES.values())


def test_the_packages_are_this_checkout_and_not_installed_namesakes():
    import data_prep
    import finetune
    import pretrain

    for package in (data_prep, finetune, pretrain):
        assert Path(package.__file__).parent.parent == ROOT


def test_no_file_is_called_after_nothing_in_particular():
    for package in PACKAGES:
        for file in files(package):
            assert file.stem not in {"utils", "common", "helpers", "misc", "core"}
