//! Variables of other launchers, which ranks must not inherit.

/// Names and prefixes of variables that a launcher sets for its own ranks, an outer hydrant included. MPICH refuses to start with
/// an inherited `PMIX_RANK` or `PRTE_LAUNCHED`, Open MPI takes `OMPI_PARENT_PORT` for a spawn, and Intel MPI takes
/// `HYDRA_BSTRAP_PGID` and `PALS_PMI` for its own launcher's.
pub const FOREIGN_VARIABLES: [&str; 21] = [
    "PMI_",
    "PMI2_",
    "PMIX_",
    "PRTE_",
    "PRRTE_",
    "HYDI_",
    "HYDRA_BSTRAP_",
    "PALS_",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_PARENT_PORT",
    "OMPI_FIRST_RANKS",
    "OMPI_NUM_APP_CTX",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "JSM_",
    "HYDRANT_QUERY",
    "HYDRANT_KVS",
];

/// Settings of client libraries that match [`FOREIGN_VARIABLES`] but belong to the user. They are inherited.
pub const TUNABLE_VARIABLES: [&str; 5] =
    ["PMI_DEBUG", "PMI2_DEBUG", "PMI_USE_LOGFILE", "PMI_VERSION", "PMI_SUBVERSION"];

/// Returns whether a variable is another launcher's.
pub fn is_foreign_variable(name: &[u8]) -> bool {
    FOREIGN_VARIABLES.iter().any(|foreign| name.starts_with(foreign.as_bytes()))
        && !TUNABLE_VARIABLES.iter().any(|tunable| name == tunable.as_bytes())
}
