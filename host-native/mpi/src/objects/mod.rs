//! Objects behind handles, in a process without an MPI library.

mod environment;
mod errhandler;
mod group;
mod info;
mod session;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::Class;

pub(crate) use environment::environment;
pub(crate) use errhandler::{ErrhandlerAction, Errhandlers, UserFunction};
pub(crate) use group::{Group, Groups};
pub(crate) use info::Infos;
pub(crate) use session::Session;
pub(crate) use table::Table;

/// All objects of the process.
pub(crate) struct Objects {
    pub(crate) infos: Infos,
    pub(crate) sessions: Table<Session>,
    pub(crate) errhandlers: Errhandlers,
    pub(crate) groups: Groups,
}

static OBJECTS: Mutex<Objects> = Mutex::new(Objects {
    infos: Infos::new(),
    sessions: Table::new(2, Class::Session, "session"),
    errhandlers: Errhandlers::new(),
    groups: Groups::new(),
});

/// Locks the objects. A user's function must not be called while they are locked.
pub(crate) fn lock() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}
