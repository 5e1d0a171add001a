//! Names of status sockets, in the abstract namespace: nothing is left behind by a killed run, and nothing has to be removed.
//!
//! Any user can listen under any name, so a client checks the user of the process that listens.

use std::fs;
use std::io;

/// Version of the protocol.
pub const VERSION: u32 = 2;
/// Flag of a listening socket in `/proc/net/unix`.
const LISTENS: u64 = 0x1_0000;

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

    /// The name, without the zero byte of the abstract namespace.
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
    Ok(parse_list(&fs::read("/proc/self/net/unix")?, user))
}

/// Finds the sockets of a user in the text of `/proc/net/unix`: address, references, protocol, flags, type, state, inode, name.
fn parse_list(text: &[u8], user: u32) -> Vec<Address> {
    let of_line = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let flags = u64::from_str_radix(words.nth(3)?, 16).ok()?;
        let name = words.nth(3)?.strip_prefix('@')?;
        // Accepted connections have the name of the socket that listens.
        (flags & LISTENS != 0).then(|| Address::parse(name, user))?
    };
    let mut found: Vec<Address> = text.split(|&byte| byte == b'\n').filter_map(of_line).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_of_the_user_are_found() {
        let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
            ffff: 00000002 00000000 00010000 0001 01 11 @hydrant/status/2/7/4711/0000beef\n\
            ffff: 00000003 00000000 00000000 0001 03 12 @hydrant/status/2/7/4711/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 13 @hydrant/status/2/70/4712/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 14 @hydrant/status/3/7/4713/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 15 @hydrant/status/2/7/x/0000beef\n\
            ffff: 00000002 00000000 00010000 0001 01 16 /run/\xff\n\
            ffff: 00000002 00000000 00010000 0001 01 17\n\
            ffff: 00000002 00000000 00010000 0001 01 18 @hydrant/status/2/7/19/00000001\n";
        let found = parse_list(text, 7);
        assert_eq!(found, [Address::new(7, 19, 1), Address::new(7, 4711, 0xbeef)]);
    }
}
