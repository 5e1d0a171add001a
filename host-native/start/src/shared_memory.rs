//! Variables by which MPI libraries share less memory between ranks of a host.
//!
//! They find each other by the name of the host, and do not see that a container has a `/dev/shm` or process ids of its own.
//! MPICH then waits for good, and Open MPI reads the memory of a wrong process.

use hydrant_control::protocol::SharedMemory;

/// No reading of other processes (`process_vm_readv`, `/proc/PID/fd`), which needs common user and PID namespaces.
const SEGMENTS: [(&str, &str); 5] = [
    ("MPIR_CVAR_CH4_CMA_ENABLE", "0"),
    ("OMPI_MCA_smsc", "^cma"),
    // Of Open MPI 4.
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ("UCX_TLS", "^cma"),
    ("UCX_POSIX_USE_PROC_LINK", "n"),
];

/// No shared memory. The clients of PMI get a mapping of ranks to nodes that says so; MPICH may be built for PMIx.
const NONE: [(&str, &str); 4] = [
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("OMPI_MCA_btl", "^sm,vader"),
    // The other one of Open MPI 5 (`netlink`) finds no way from a host to itself.
    ("OMPI_MCA_reachable", "weighted"),
    ("UCX_TLS", "^shm"),
];

/// Returns names and values.
pub(crate) fn variables(ways: SharedMemory) -> &'static [(&'static str, &'static str)] {
    match ways {
        SharedMemory::All => &[],
        SharedMemory::Segments => &SEGMENTS,
        SharedMemory::None => &NONE,
    }
}
