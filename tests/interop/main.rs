//! Real, unmodified MPI libraries and PMI clients under `hydrant run`.

mod intel;
mod mpich;
mod slurm;
