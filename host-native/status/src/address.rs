//! Names of status sockets.

use std::io;

use hydrant_reactor::local;

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Status socket of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Process id of the run.
    pub pid: u32,
    name: String,
}

impl Address {
    /// Name of a new socket. The number is unpredictable, so that no other user takes the name first.
    pub(crate) fn new(user: u32, pid: u32, nonce: u32) -> Address {
        Address { pid, name: format!("{}{pid}/{nonce:08x}", prefix(user)) }
    }

    /// The name of the local socket.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn parse(name: &str, user: u32) -> Option<Address> {
        let (pid, _) = name.strip_prefix(&prefix(user))?.split_once('/')?;
        Some(Address { pid: pid.parse().ok()?, name: name.to_owned() })
    }
}

fn prefix(user: u32) -> String {
    format!("hydrant/status/{VERSION}/{user}/")
}

/// Returns the sockets whose names are those of runs of a user, by process id.
///
/// # Errors
/// The list of sockets cannot be read.
pub(crate) fn list(user: u32) -> io::Result<Vec<Address>> {
    let names = local::list(&prefix(user))?;
    let mut found: Vec<Address> = names.iter().filter_map(|name| Address::parse(name, user)).collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_process_of_the_user() {
        let address = Address::new(7, 4711, 0xbeef);
        assert_eq!(address.name(), "hydrant/status/1/7/4711/0000beef");
        assert_eq!(Address::parse(address.name(), 7), Some(address));
        for name in
            ["hydrant/status/1/70/4712/0000beef", "hydrant/status/2/7/4713/0", "hydrant/status/1/7/x/0"]
        {
            assert_eq!(Address::parse(name, 7), None, "{name}");
        }
    }
}
