# SPDX-License-Identifier: BSD-3-Clause
"""A program: initialises the MPI library that it is given. It imports nothing of altorch, so that it starts at once.

python -I -S _fabric_ask.py LIBRARY [fast] [choose]

`fast`: this machine has a fast network. `choose`: it has none, and the user selects no network, so that altorch chooses
MPICH's netmod.
"""

import ctypes
import os
import re
import resource
import sys


def main(path: str, words: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    version = text.value.decode(errors="replace")
    print("Library version:", " | ".join(version.splitlines()), flush=True)
    open_mpi = re.search(r"Open MPI v(\d+)", version)
    if open_mpi and int(open_mpi[1]) >= 5 and "fast" not in words:
        # As csrc/bootstrap/process_manager.cpp: the search for libfabric's networks takes a second.
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")
        os.environ.setdefault("OMPI_MCA_mtl", "^ofi")
    if "choose" in words and re.search(r"MPICH Device:.*(ucx.*ofi|ofi.*ucx)", version):
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
    return int(library.MPI_Init(None, None) or library.MPI_Finalize())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
