//! The variables that tell a process where its server is and who it is.

use std::ffi::{OsString, c_int};

use crate::error::Error;

/// Where the server is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `PMI_FD`: a connected socket that was inherited. Size 0 where `PMI_SIZE` does not tell it: the server does.
    Fd { fd: c_int, rank: u32, size: u32 },
    /// `PMI_PORT`: the address to connect to, as the process number `PMI_ID`.
    Port { address: String, id: u32 },
    /// There is none.
    Alone,
}

/// What the environment tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) place: Place,
    /// `PMI_JOBID`, which Slurm's server wants to hear.
    pub(crate) jobid: Option<String>,
    /// `PMI_SPAWNED`: whether another job started this one.
    pub(crate) spawned: bool,
    /// `HYDRANT_KVS`: where the server shares its key-value log.
    pub(crate) offer: Option<String>,
}

/// `PMI2_DEBUG`: whether the user wants to hear reasons.
pub(crate) fn debugging() -> bool {
    std::env::var_os("PMI2_DEBUG").is_some_and(|value| !value.is_empty() && value != "0")
}

impl Environment {
    /// Reads the variables; `PMI_FD` counts more than `PMI_PORT`.
    pub(crate) fn read(get: impl Fn(&'static str) -> Option<OsString>) -> Result<Environment, Error> {
        let text = |name: &'static str| get(name).map(|value| value.to_string_lossy().into_owned());
        let number = |name: &'static str| match text(name) {
            None => Ok(None),
            Some(value) => match value.parse::<u32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Error::Variable { name, value, wanted: "a number" }),
            },
        };
        let place = if let Some(value) = text("PMI_FD") {
            let fd = value.parse::<c_int>().ok().filter(|&fd| fd >= 0);
            let fd = fd.ok_or(Error::Variable { name: "PMI_FD", value, wanted: "a descriptor" })?;
            let rank = number("PMI_RANK")?.ok_or(Error::NoVariable { name: "PMI_RANK", beside: "PMI_FD" })?;
            Place::Fd { fd, rank, size: number("PMI_SIZE")?.unwrap_or(0) }
        } else if let Some(address) = text("PMI_PORT") {
            let id = number("PMI_ID")?.ok_or(Error::NoVariable { name: "PMI_ID", beside: "PMI_PORT" })?;
            Place::Port { address, id }
        } else {
            Place::Alone
        };
        let spawned = text("PMI_SPAWNED").is_some_and(|value| value != "0") && place != Place::Alone;
        let jobid = text("PMI_JOBID").filter(|id| !id.is_empty());
        let offer = text("HYDRANT_KVS").filter(|_| matches!(place, Place::Fd { .. }));
        Ok(Environment { place, jobid, spawned, offer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&'static str, &str)]) -> Result<Environment, Error> {
        Environment::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn ways_to_the_server() {
        let fd = [
            ("PMI_FD", "6"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("PMI_PORT", "x:1"),
            ("PMI_JOBID", "7.0"),
        ];
        let found = read(&fd).unwrap();
        assert_eq!(found.place, Place::Fd { fd: 6, rank: 1, size: 2 });
        assert_eq!((found.jobid.as_deref(), found.spawned), (Some("7.0"), false));
        let offered = read(&[("HYDRANT_KVS", "1,x"), fd[0], fd[1]]).unwrap();
        assert_eq!((found.offer, offered.offer.as_deref()), (None, Some("1,x")));
        let port = [("PMI_PORT", "vm:4000"), ("PMI_ID", "3"), ("PMI_SPAWNED", "1"), ("HYDRANT_KVS", "1,x")];
        let found = read(&port).unwrap();
        assert_eq!(found.place, Place::Port { address: "vm:4000".into(), id: 3 });
        assert_eq!((found.spawned, found.offer), (true, None));
        let found = read(&[("PMI_RANK", "1"), ("PMI_JOBID", ""), ("PMI_SPAWNED", "1")]).unwrap();
        assert_eq!(found, Environment { place: Place::Alone, jobid: None, spawned: false, offer: None });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (variables, wrong) in [
            (&[("PMI_FD", "-1"), ("PMI_RANK", "0")][..], "PMI_FD='-1'"),
            (&[("PMI_FD", "x"), ("PMI_RANK", "0")], "PMI_FD='x'"),
            (&[("PMI_FD", "6")], "PMI_RANK is missing"),
            (&[("PMI_FD", "6"), ("PMI_RANK", "-2")], "PMI_RANK='-2'"),
            (&[("PMI_PORT", "x:1")], "PMI_ID is missing"),
        ] {
            let error = read(variables).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
            assert_eq!(error.code(), crate::Code::Init);
        }
    }
}
