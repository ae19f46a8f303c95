"""The rules on who may import whom, checked rather than hoped for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXPORTED = ROOT / "pretrain" / "hugging_face"
PACKAGES = {
    "data_prep": set(),
    "pretrain": {"data_prep"},
    "finetune": {"data_prep", "pretrain"},
}
# Inside pretrain: a file may import only files of a lower level.
LEVELS = [
    {"config", "launcher"},
    {"json_objects"},
    {"checkpoints", "run_lines"},
    {"checkpoint_folders", "recipe", "interruption", "ds_names"},
    {
        "model",
        "layer_drop",
        "schedules",
        "budget",
        "data",
        "ds_config",
        "logs",
        "matrix_rate",
        "memory",
        "pages",
        "phases",
        "trouble",
        "words",
        "bert_names",
        "command_line",
        "finetuned_scores",
        "hugging_face",
    },
    {"provenance", "launch_differences", "stored_tensors"},
    {
        "collectives",
        "execution",
        "exported",
        "export_tokenizer",
        "foreign_model",
        "inspection",
        "trouble_folder",
    },
    {"deepspeed_library", "engine_state"},
    {"ranks", "optimizer"},
    {"engine", "run_record", "resume", "convergence", "hugging_face_bert", "tupe_checkpoint"},
    {
        "agreement",
        "flight_recorder",
        "saver",
        "peers",
        "rank_death",
        "foreign",
        "progress",
        "comparison_table",
        "operators",
        "checked_settings",
        "speed",
    },
    {"summary", "speed_table", "provenance_table", "pretrained", "watchdog", "lookout"},
    {"trainer"},
    {"report", "export_check", "initial_weights", "pretrained_folder"},
    {"model_card", "examination"},
    {"doctor", "train", "prepare", "compare", "fill_mask", "plan", "export", "import_weights"},
    {"profile_step"},
    {"__main__"},
]


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Code that is copied out of the package cannot name it.
            assert node.level == 0 or file.parent == EXPORTED, f"{file} imports relatively"
            yield node.module if node.level == 0 else f"{EXPORTED.name}.{node.module}"


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
        ("deepspeed", {"pretrain/deepspeed_library.py"}),
        ("h5py", {"data_prep/shards.py", "data_prep/foreign_shards.py"}),  # our format, and theirs
        ("triton", {"pretrain/model/triton_kernels.py"}),
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


def level(module):
    part = module.split(".")[1]
    return next(index for index, names in enumerate(LEVELS) if part in names)


def test_pretrain_imports_point_downwards():
    for file in files("pretrain"):
        if file.name == "__init__.py":
            continue
        own = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for name in imported(file):
            if name.startswith("pretrain."):
                folders = {name.split(".")[1], own.split(".")[1]}
                same_folder = folders in ({"model"}, {"examination"})
                assert same_folder or level(name) < level(own), f"{own} imports {name}"


def test_the_model_knows_nothing_of_ranks_devices_or_deepspeed():
    for file in files("pretrain/model"):
        names = set(imported(file))
        forbidden = ("torch.distributed", "torch.cuda", "deepspeed", "pretrain.engine")
        assert not {name for name in names if name.startswith(forbidden)}, file


def test_exported_code_needs_nothing_but_torch_and_transformers():
    allowed = {"torch", "transformers", EXPORTED.name} | sys.stdlib_module_names
    for file in sorted(EXPORTED.glob("*.py")):
        assert {name.split(".")[0] for name in imported(file)} <= allowed, file


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


WITHOUT_TEXT_PACKAGES = """
import sys
BLOCKED = ("datasets mwparserfromhell pyarrow sacremoses sentencex spacy zstandard").split()

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
import pretrain.__main__, pretrain.train, pretrain.fill_mask
"""


WITHOUT_TRITON = """
import sys
import pretrain.model.encoder
assert "pretrain.model.triton_kernels" not in sys.modules
"""


def test_a_model_is_built_without_triton_where_nothing_asks_for_it():
    subprocess.run([sys.executable, "-c", WITHOUT_TRITON], cwd=ROOT, check=True)


def test_training_runs_without_the_packages_that_only_read_text():
    subprocess.run([sys.executable, "-c", WITHOUT_TEXT_PACKAGES], cwd=ROOT, check=True)
