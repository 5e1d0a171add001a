//! Environment variables by which a process finds its PMI server.

use std::ffi::OsString;
use std::os::fd::RawFd;

use hydrant_wire::Protocol;
use hydrant_wire::client::Start;

use crate::Error;

/// Name of the variable with the address of the query socket: `@` and a name in the abstract Unix namespace.
pub const QUERY: &str = "HYDRANT_QUERY";
/// Name of the variable with the offer of the shared key-value segment.
pub const KVS: &str = "HYDRANT_KVS";

/// How the process reaches its PMI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// `PMI_FD`: a connected socket that the process inherited.
    Inherited {
        /// `PMI_FD`.
        fd: RawFd,
        /// `PMI_RANK`.
        rank: u32,
        /// `PMI_SIZE`, which Slurm's and hydra's PMI-2 servers report in the handshake instead.
        size: Option<u32>,
    },
    /// `PMI_PORT`: a TCP address.
    Tcp {
        /// `PMI_PORT`, as `host:port`.
        address: String,
        /// `PMI_ID`, by which the process identifies itself.
        id: u32,
    },
}

impl ServerAddress {
    /// Returns how a client of this address starts its handshake.
    ///
    /// # Errors
    /// [`Error::MissingVariable`] for PMI-1 over an inherited socket without `PMI_SIZE`: the PMI-1 server does not
    /// report the size.
    pub fn start(&self, protocol: Protocol) -> Result<Start, Error> {
        match *self {
            ServerAddress::Inherited { size: None, .. } if protocol == Protocol::V1 => {
                Err(Error::MissingVariable { name: "PMI_SIZE", required_by: "PMI_FD" })
            }
            ServerAddress::Inherited { rank, size, .. } => Ok(Start::Fd { rank, size: size.unwrap_or(0) }),
            ServerAddress::Tcp { id, .. } => Ok(Start::Port { id }),
        }
    }
}

/// Variables of a process that a process manager started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The server; `None` in a process that was started without a process manager (a singleton).
    pub server: Option<ServerAddress>,
    /// `PMI_JOBID`, which Slurm's server requires in the handshake. `None` if it is empty or there is no server.
    pub jobid: Option<String>,
    /// `PMI_SPAWNED`: whether another job spawned this one.
    pub spawned: bool,
    /// `HYDRANT_KVS`: the offer for [`Segment::open`](crate::Segment::open). `None` without `PMI_FD`, because the
    /// segment belongs to the server at the other end of that socket.
    pub segment: Option<String>,
}

impl Environment {
    /// Reads the variables by `get`, usually [`std::env::var_os`]. `PMI_FD` takes precedence over `PMI_PORT`.
    ///
    /// # Errors
    /// [`Error::InvalidVariable`] and [`Error::MissingVariable`].
    pub fn read(get: impl Fn(&'static str) -> Option<OsString>) -> Result<Environment, Error> {
        let variables = Variables(get);
        let Some(server) = variables.server()? else { return Ok(Environment::default()) };
        let inherited = matches!(server, ServerAddress::Inherited { .. });
        Ok(Environment {
            jobid: variables.text("PMI_JOBID").filter(|id| !id.is_empty()),
            spawned: variables.text("PMI_SPAWNED").is_some_and(|value| value != "0"),
            segment: variables.text(KVS).filter(|_| inherited),
            server: Some(server),
        })
    }
}

/// Address of the socket at which hydrant answers queries of a rank, and the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryAddress {
    /// `HYDRANT_QUERY`.
    pub address: String,
    /// `PMI_RANK`.
    pub rank: u32,
}

impl QueryAddress {
    /// Reads the variables by `get`, usually [`std::env::var_os`].
    ///
    /// # Errors
    /// [`Error::InvalidVariable`] and [`Error::MissingVariable`].
    pub fn read(get: impl Fn(&'static str) -> Option<OsString>) -> Result<QueryAddress, Error> {
        let variables = Variables(get);
        let address = variables.text(QUERY);
        let address =
            address.ok_or(Error::MissingVariable { name: QUERY, required_by: "hydrant run --mpi-psets" })?;
        Ok(QueryAddress { address, rank: variables.required("PMI_RANK", QUERY)? })
    }
}

/// Returns `PMI_RANK` and `PMI_SIZE` if both are numbers and the rank is below the size.
pub fn rank_and_size(get: impl Fn(&'static str) -> Option<OsString>) -> Option<(u32, u32)> {
    let variables = Variables(get);
    match (variables.number("PMI_RANK"), variables.number("PMI_SIZE")) {
        (Ok(Some(rank)), Ok(Some(size))) if rank < size => Some((rank, size)),
        _ => None,
    }
}

/// A function that looks variables up.
struct Variables<G>(G);

impl<G: Fn(&'static str) -> Option<OsString>> Variables<G> {
    fn text(&self, name: &'static str) -> Option<String> {
        (self.0)(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn number(&self, name: &'static str) -> Result<Option<u32>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::InvalidVariable { name, value, expected: "a number" }),
        }
    }

    fn required(&self, name: &'static str, required_by: &'static str) -> Result<u32, Error> {
        self.number(name)?.ok_or(Error::MissingVariable { name, required_by })
    }

    fn server(&self) -> Result<Option<ServerAddress>, Error> {
        if let Some(value) = self.text("PMI_FD") {
            let fd = value.parse().ok().filter(|&fd: &RawFd| fd >= 0);
            let fd = fd.ok_or(Error::InvalidVariable { name: "PMI_FD", value, expected: "a descriptor" })?;
            let rank = self.required("PMI_RANK", "PMI_FD")?;
            return Ok(Some(ServerAddress::Inherited { fd, rank, size: self.number("PMI_SIZE")? }));
        }
        let Some(address) = self.text("PMI_PORT") else { return Ok(None) };
        Ok(Some(ServerAddress::Tcp { address, id: self.required("PMI_ID", "PMI_PORT")? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variable = (&'static str, &'static str);

    fn getter(variables: &[Variable]) -> impl Fn(&'static str) -> Option<OsString> {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn read(variables: &[Variable]) -> Result<Environment, Error> {
        Environment::read(getter(variables))
    }

    #[test]
    fn servers_are_found() {
        let fd = [
            ("PMI_FD", "6"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("PMI_PORT", "x:1"),
            ("PMI_JOBID", "7.0"),
        ];
        let found = read(&fd).unwrap();
        assert_eq!(found.server, Some(ServerAddress::Inherited { fd: 6, rank: 1, size: Some(2) }));
        assert_eq!((found.jobid.as_deref(), found.spawned), (Some("7.0"), false));
        let offered = read(&[("HYDRANT_KVS", "1,x"), fd[0], fd[1]]).unwrap();
        assert_eq!((found.segment, offered.segment.as_deref()), (None, Some("1,x")));
        let port = [("PMI_PORT", "vm:4000"), ("PMI_ID", "3"), ("PMI_SPAWNED", "1"), ("HYDRANT_KVS", "1,x")];
        let found = read(&port).unwrap();
        assert_eq!(found.server, Some(ServerAddress::Tcp { address: "vm:4000".into(), id: 3 }));
        assert_eq!((found.spawned, found.segment), (true, None));
        let found = read(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_JOBID", ""), ("PMI_SPAWNED", "1")]);
        assert_eq!(found.unwrap(), Environment::default());
        assert_eq!(read(&[("PMI_JOBID", "7.0")]).unwrap().jobid, None);
    }

    #[test]
    fn errors_name_the_variable() {
        for (variables, wrong) in [
            (&[("PMI_FD", "-1"), ("PMI_RANK", "0")][..], "PMI_FD='-1'"),
            (&[("PMI_FD", "x"), ("PMI_RANK", "0")], "PMI_FD='x'"),
            (&[("PMI_FD", "6")], "PMI_RANK is not set"),
            (&[("PMI_FD", "6"), ("PMI_RANK", "-2")], "PMI_RANK='-2'"),
            (&[("PMI_FD", "6"), ("PMI_RANK", "0"), ("PMI_SIZE", "-1")], "PMI_SIZE='-1'"),
            (&[("PMI_PORT", "x:1")], "PMI_ID is not set"),
        ] {
            let error = read(variables).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn only_pmi_1_requires_the_size() {
        let server = ServerAddress::Inherited { fd: 6, rank: 1, size: None };
        assert_eq!(server.start(Protocol::V2).unwrap(), Start::Fd { rank: 1, size: 0 });
        let error = server.start(Protocol::V1).unwrap_err().to_string();
        assert!(error.contains("PMI_SIZE is not set"), "{error}");
    }

    #[test]
    fn queries_need_an_address_and_a_rank() {
        let query = |variables: &[Variable]| QueryAddress::read(getter(variables));
        let both = query(&[("HYDRANT_QUERY", "@a"), ("PMI_RANK", "3")]).unwrap();
        assert_eq!(both, QueryAddress { address: "@a".into(), rank: 3 });
        assert!(query(&[("HYDRANT_QUERY", "@a")]).unwrap_err().to_string().contains("PMI_RANK"));
        assert!(query(&[("PMI_RANK", "3")]).unwrap_err().to_string().contains("HYDRANT_QUERY"));
    }

    #[test]
    fn rank_and_size_have_to_agree() {
        let pair = |rank, size| rank_and_size(getter(&[("PMI_RANK", rank), ("PMI_SIZE", size)]));
        assert_eq!(pair("1", "2"), Some((1, 2)));
        assert_eq!(pair("2", "2"), None);
        assert_eq!(pair("x", "2"), None);
        assert_eq!(rank_and_size(getter(&[("PMI_RANK", "0")])), None);
    }
}
