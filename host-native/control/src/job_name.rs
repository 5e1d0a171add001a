//! Job ids that clients see.

use hydrant_core::limits::JOBID_MAX;

/// Job id that clients see: `kvs_PROCESS_ORDINAL_NONCE_HOST`, cut to [`JOBID_MAX`] bytes. The nonce keeps other users
/// from guessing it.
pub fn job_name(process: u32, ordinal: u32, nonce: u32, host: &str) -> String {
    let mut name = format!("kvs_{process}_{ordinal}_{nonce:08x}_");
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    name
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
