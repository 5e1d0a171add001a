//! Handles of info objects.

use super::Table;
use super::environment::initial_environment;
use crate::abi::{Class, Handle, INFO_ENV};
use crate::error::Error;
use crate::info::Info;

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
            None => initial_environment()?,
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
        Ok(self.get(handle)?.copy()?)
    }
}
