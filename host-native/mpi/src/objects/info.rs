//! Info objects, and `MPI_INFO_ENV`.

use std::env;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use hydrant_core::info::Environment;

use super::Table;
use crate::abi::{Class, Handle, INFO_ENV};
use crate::error::Error;
use crate::psets;

/// Capacity of an object in bytes: some sixty pairs of maximum length. Untouched memory costs nothing.
const CAPACITY: usize = 64 * 1024;

pub(crate) type Info = hydrant_core::info::Info<Box<[u8]>>;

/// All info objects.
pub(crate) struct Infos {
    created: Table<Info>,
    /// `MPI_INFO_ENV`, after its first use.
    env: Option<Info>,
}

impl Infos {
    pub(crate) const fn new() -> Infos {
        Infos { created: Table::new(1, Class::Info, "info"), env: None }
    }

    /// Adds an object and returns its handle.
    pub(crate) fn insert(&mut self, info: Info) -> Handle {
        self.created.insert(info)
    }

    /// Returns an object to read.
    pub(crate) fn get(&mut self, handle: Handle) -> Result<&Info, Error> {
        if handle != INFO_ENV {
            return self.created.get(handle);
        }
        let info = match self.env.take() {
            Some(info) => info,
            None => {
                let args: Vec<Vec<u8>> = env::args_os().map(OsStringExt::into_vec).collect();
                environment(&args.iter().map(Vec::as_slice).collect::<Vec<_>>())?
            }
        };
        Ok(self.env.insert(info))
    }

    /// Returns an object to change.
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut Info, Error> {
        if handle == INFO_ENV {
            return Err(Error::InfoEnvImmutable);
        }
        self.created.get_mut(handle)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<(), Error> {
        self.get_mut(handle)?;
        self.created.remove(handle).map(drop)
    }

    /// Copies an object.
    pub(crate) fn copy(&mut self, handle: Handle) -> Result<Info, Error> {
        Ok(self.get(handle)?.dup(vec![0; CAPACITY].into())?)
    }
}

/// Returns an object without keys.
pub(crate) fn empty_info() -> Info {
    Info::new(vec![0; CAPACITY].into())
}

/// Returns the keys of `MPI_INFO_ENV`: how this process was started, with these arguments. The first one is its name.
pub(crate) fn environment(args: &[&[u8]]) -> Result<Info, Error> {
    // Without hydrant's process sets the programs of the job are unknown.
    let of_job = || env::var("PMI_SIZE").ok().and_then(|size| size.parse().ok());
    let maxprocs = psets::program_size().or_else(of_job);
    let wdir = env::current_dir().unwrap_or_default();
    let system = rustix::system::uname();
    let mut info = empty_info();
    let environment = Environment {
        command: args.first().copied().unwrap_or_default(),
        args: args.get(1..).unwrap_or_default(),
        maxprocs: maxprocs.unwrap_or(1),
        host: system.nodename().to_bytes(),
        arch: env::consts::ARCH.as_bytes(),
        wdir: wdir.as_os_str().as_bytes(),
    };
    environment.set(&mut info)?;
    Ok(info)
}
