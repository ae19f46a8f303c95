"""Headers and libraries of CUDA, of a toolkit and of pip."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from pretrain.distributed import cuda_toolkit
from pretrain.distributed.cuda_toolkit import missing_from_cuda, with_cuda_of_pip


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """The folder of packages of pip, which have a header and a library."""
    folder = tmp_path / "nvidia/cu13"
    found = SimpleNamespace(submodule_search_locations=[str(folder.parent)])
    monkeypatch.setattr(cuda_toolkit, "find_spec", lambda _: found)
    (folder / "include/crt").mkdir(parents=True)
    (folder / "include/cusparse.h").write_text("int version();")
    (folder / "lib").mkdir()
    (folder / "lib/libcudart.so.13").touch()
    return folder


@pytest.mark.parametrize("file", ["include/crt", "include/cusparse.h", "lib/libcudart.so.13"])
def test_what_neither_the_toolkit_nor_pip_has_is_named_with_the_command(pip, tmp_path, file):
    assert missing_from_cuda(tmp_path, "13.0") is None
    (pip / file).rename(tmp_path / "aside")
    missing = missing_from_cuda(tmp_path, "13.0")
    assert f"have {file[:-3]}" in missing and "cusparse]==13.0.*'" in missing
    (tmp_path / file).parent.mkdir()
    (tmp_path / "aside").rename(tmp_path / file)
    assert missing_from_cuda(tmp_path, "13.0") is None


@pytest.mark.skipif(not shutil.which("g++"), reason="a compiler shows it")
def test_a_compiler_finds_in_packages_of_pip_what_the_toolkit_lacks(pip, tmp_path):
    library, program = tmp_path / "library.cpp", tmp_path / "program.cpp"
    library.write_text("int version() { return 13; }")
    program.write_text("#include <cusparse.h>\nint main() { return version(); }")
    shared = ["g++", "-shared", "-fPIC", library, "-o", pip / "lib/libcudart.so.13"]
    subprocess.run(shared, check=True)
    before, build = dict(os.environ), ["g++", program, "-o", tmp_path / "program", "-lcudart"]
    assert subprocess.run(build, stderr=subprocess.DEVNULL).returncode != 0
    with with_cuda_of_pip():
        subprocess.run(build, check=True)
    assert os.environ == before
