//! The `hydrant` command as a library: plans a job, launches it and serves it.

pub mod plan;
