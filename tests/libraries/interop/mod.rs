//! Real, unmodified MPI libraries and PMI clients under `hydrant run`.

mod containers;
mod debuggers;
mod dynamic;
mod functions;
mod groups;
mod intel;
mod libpmix;
mod mpich;
mod openmpi;
mod openmpi_nodes;
mod openmpi_output;
mod slurm;
mod tools;
mod universe;
