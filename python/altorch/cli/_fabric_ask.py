# SPDX-License-Identifier: BSD-3-Clause
"""A program: initialises the MPI library that it is given. It imports nothing of altorch, so that it starts at once.

python -I -S _fabric_ask.py LIBRARY [fast]    `fast`: this machine has a fast network
"""

import ctypes
import os
import re
import resource
import sys


def main(path: str, fast: bool) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    version = text.value.decode(errors="replace")
    print("Library version:", " | ".join(version.splitlines()), flush=True)
    open_mpi = re.search(r"Open MPI v(\d+)", version)
    if open_mpi and int(open_mpi[1]) >= 5 and not fast:
        # As csrc/bootstrap/process_manager.cpp: the search for libfabric's networks takes a second.
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")
        os.environ.setdefault("OMPI_MCA_mtl", "^ofi")
    return int(library.MPI_Init(None, None) or library.MPI_Finalize())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "fast" in sys.argv[2:]))
