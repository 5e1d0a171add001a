//! Real, unmodified MPI libraries and PMI clients under `hydrant run`.

mod dynamic;
mod functions;
mod intel;
mod libpmix;
mod mpich;
mod openmpi;
mod openmpi_nodes;
mod slurm;
mod universe;
