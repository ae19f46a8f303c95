"""What torch's extensions for CUDA are compiled with, and a toolkit with nvcc may lack.

The packages of pip with which torch computes have most of it, too.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from data_prep.files.quoting import quoted

NEEDED = ("include/crt", "include/cusparse.h", "lib*/libcudart.so*")


def missing_from_cuda(home: Path, version: str) -> str | None:
    """Return what neither the toolkit nor pip has, and what to do; None: nothing is known.

    Args:
        home: the folder CUDA_HOME, as torch found it.
        version: of CUDA, such as 13.0.
    """
    for file in NEEDED:
        of_toolkit = [home.glob(f"{above}{file}") for above in ("", "targets/*/")]
        if not any(map(any, [*of_toolkit, _of_pip(file)])):
            return (
                f"neither {quoted(str(home))} nor pip's packages have "
                f"{file.replace('*', '')}: export CUDA_HOME, "
                "such as /usr/local/cuda, or python -m pip install "
                f"'cuda-toolkit[crt,cublas,cudart,cusolver,cusparse]=={version}.*'"
            )
    return None


@contextlib.contextmanager
def with_cuda_of_pip() -> Iterator[None]:
    """Let compilers look in the packages of pip after the toolkit of nvcc."""
    with tempfile.TemporaryDirectory() as links:
        for library in _of_pip("lib/libcudart.so.*")[:1]:
            Path(links, "libcudart.so").symlink_to(library)  # the name by which it is linked
        before = dict(os.environ)
        added = {"CPLUS_INCLUDE_PATH": _of_pip("include"), "LIBRARY_PATH": [links]}
        for name, folders in added.items():
            given = filter(None, [before.get(name)])
            os.environ[name] = os.pathsep.join([*given, *map(str, folders)])
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]
            os.environ.update(before)


def _of_pip(pattern: str) -> list[Path]:
    """Return files of NVIDIA's packages: of CUDA 13 in nvidia/cu13, of CUDA 12 in many folders."""
    places = getattr(find_spec("nvidia"), "submodule_search_locations", None) or ()
    return [file for place in places for file in Path(place).glob(f"*/{pattern}")]
