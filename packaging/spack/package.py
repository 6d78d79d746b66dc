# SPDX-License-Identifier: BSD-3-Clause
"""altorch for Spack: copy this file to <repository>/packages/py_altorch/package.py."""

from spack.package import conflicts, depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyAltorch(PythonPackage):
    """A torch.distributed backend over shared memory, MPI, NVLink peer kernels and NCCL."""

    git = "<URL of the repository>"

    license("BSD-3-Clause")
    version("main", branch="main")

    variant("cuda", default=False, description="Compile the GPU kernels ahead, with nvcc")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-torch@2.11:2.15+distributed", type=("build", "link", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    # Any MPI: altorch loads it at run time and links to none. The headers say which ABIs are
    # served.
    depends_on("mpi", type=("build", "run"))
    depends_on("cuda", when="+cuda", type="build")

    conflicts("%gcc@:10", msg="altorch is C++20")

    def setup_build_environment(self, env):
        env.set("ALTORCH_BUILD_OFFLINE", "1")
        env.set("CMAKE_ARGS", "-DALTORCH_AHEAD=" + ("ON" if self.spec.satisfies("+cuda") else "OFF"))
