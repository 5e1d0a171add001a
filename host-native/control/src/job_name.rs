//! Job ids that clients see.

use hydrant_core::limits::JOBID_MAX;

/// First bytes of each job id.
pub const JOBID_PREFIX: &str = "kvs_";

/// Job id that clients see: `kvs_PROCESS_ORDINAL_NONCE_HOST`, cut to [`JOBID_MAX`] bytes. The nonce keeps other users
/// from guessing it.
pub fn job_name(process: u32, ordinal: u32, nonce: u32, host: &str) -> String {
    let mut name = format!("{JOBID_PREFIX}{process}_{ordinal}_{nonce:08x}_");
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    name
}

/// Name of a job's query socket on a node in the abstract namespace of Unix sockets. Node 0 is the process that was asked
/// to run the job.
pub fn query_name(jobid: &str, node: u32) -> String {
    format!("hydrant/{jobid}/{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_name_fits() {
        assert_eq!(job_name(7, 1, 0xab, "n-1.x y"), "kvs_7_1_000000ab_n-1.xy");
        assert_eq!(job_name(7, 1, 0, &"h".repeat(300)).len(), JOBID_MAX);
    }
}
