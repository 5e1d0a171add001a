"""Spack recipe: copy it to spack_repo/NAME/packages/hydrant/ of a repository of your own."""

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Hydrant(Package):
    """Process manager for parallel (MPI) jobs. It starts the ranks and serves them PMI-1, PMI-2 and PMIx."""

    # A checkout: spack install hydrant@main
    git = "file:///path/to/hydrant"
    version("main", branch="main")

    license("MIT OR Apache-2.0")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")

    def install(self, spec, prefix):
        Executable("packaging/install")("--prefix", prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_probe(self):
        hydrant = Executable(self.prefix.bin.hydrant)
        hydrant("run", "-n", "2", self.prefix.bin.hydrant, "probe")
