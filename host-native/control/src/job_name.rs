//! Job ids that clients see.

use hydrant_core::limits::JOBID_MAX;
use sha2::{Digest, Sha256};

/// First bytes of each job id.
pub const JOBID_PREFIX: &str = "kvs_";

/// Job id that clients see: `kvs_PROCESS_ORDINAL_NONCE_HOST`, cut to [`JOBID_MAX`] bytes. The nonce keeps other users
/// from guessing it, also those who see its [`alias`].
pub fn job_name(process: u32, ordinal: u32, nonce: u64, host: &str) -> String {
    let mut name = format!("{JOBID_PREFIX}{process}_{ordinal}_{nonce:016x}_");
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    name
}

/// First bytes of each [`alias`].
pub const ALIAS_PREFIX: &str = "alias_";

/// Another name of a job, from which its job id cannot be found: the first 128 bits of its SHA-256. Names of sockets are
/// public (`/proc/net/unix`), and job ids are not.
pub fn alias(jobid: &str) -> String {
    let hash = Sha256::digest(jobid);
    let digits = hash[..16].iter().map(|byte| format!("{byte:02x}"));
    digits.fold(ALIAS_PREFIX.to_owned(), |alias, digits| alias + &digits)
}

/// Name of a job's query socket on a node in the abstract namespace of Unix sockets. Node 0 is the process that was asked
/// to run the job.
pub fn query_name(jobid: &str, node: u32) -> String {
    format!("hydrant/{}/{node}", alias(jobid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_name_fits() {
        assert_eq!(job_name(7, 1, 0xab, "n-1.x y"), "kvs_7_1_00000000000000ab_n-1.xy");
        assert_eq!(job_name(7, 1, 0, &"h".repeat(300)).len(), JOBID_MAX);
    }

    #[test]
    fn names_of_sockets_do_not_have_the_job_id() {
        let jobid = job_name(7, 1, 0xab, "n");
        assert_eq!(query_name(&jobid, 0), format!("hydrant/{}/0", alias(&jobid)));
        assert!(!query_name(&jobid, 0).contains("kvs_") && alias("a") != alias("b"));
    }
}
