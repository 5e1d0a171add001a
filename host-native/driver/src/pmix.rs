//! Environment of PMIx clients, and the report of those that are not served.

/// Variables with the address of the server, one for each version of the data format. A client takes the latest that it
/// knows.
pub const PMIX_SERVER_URIS: [&str; 4] =
    ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21"];

/// Text of these variables in front of the address: name and rank of the server, and the transport.
pub const PMIX_SERVER: &str = "hydrant.0;tcp4://";

/// Version of PMIx that clients take the server for. libpmix 3 takes a server without a version for one before 3.1.5, and does not
/// find the data of other jobs, and libpmix 7 refuses to remove keys unless the server's version is 7. No other version looks for
/// more.
pub const PMIX_VERSION: &str = "7.0.0";
/// Version of PMIx that tools take the server for. Those of libpmix 7 tell a server of version 7 when they have too much output to
/// write.
pub const PMIX_VERSION_FOR_TOOLS: &str = "4.1.0";

/// Variables that are the same for all clients.
const PMIX_SETTINGS: [(&str, &str); 5] = [
    // Others expect job data in shared memory.
    ("PMIX_GDS_MODULE", "hash"),
    ("PMIX_SECURITY_MODE", "native"),
    ("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"),
    ("PMIX_VERSION", PMIX_VERSION),
    // Open MPI 4 is a singleton without a variable of a launcher that it knows. This one also leaves binding alone.
    ("JSM_JSRUN_PORT", "1"),
];

/// Returns the variables of PMIx clients, which also need their rank in `PMIX_RANK`. `address` is that of the server
/// (`127.0.0.1:4000`), if it is the same for all.
pub fn pmix_variables(jobid: &str, address: Option<&str>) -> Vec<(&'static str, String)> {
    let mut variables = vec![("PMIX_NAMESPACE", jobid.to_owned())];
    if let Some(address) = address {
        variables.extend(PMIX_SERVER_URIS.map(|name| (name, format!("{PMIX_SERVER}{address}"))));
    }
    variables.extend(PMIX_SETTINGS.map(|(name, value)| (name, value.to_owned())));
    variables
}

/// Returns the line about the refused PMIx client with this number: `why` for the first, and the number at each power of ten.
pub fn refused_line(number: u64, why: &str) -> Option<String> {
    match number {
        1 => Some(format!("refused a PMIx client, which runs as a job of one rank: {why}")),
        _ if 10_u64.pow(number.ilog10()) == number => {
            Some(format!("refused {number} PMIx clients, which run as jobs of one rank"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_pmix_clients_are_reported_at_powers_of_ten() {
        let lines = (1..=1000).filter(|&number| refused_line(number, "").is_some());
        assert_eq!(lines.collect::<Vec<_>>(), [1, 10, 100, 1000]);
    }
}
