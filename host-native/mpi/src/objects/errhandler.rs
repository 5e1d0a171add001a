//! Error handlers, with reference counts.

use super::Table;
use crate::abi::{
    Class, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN, ErrhandlerFunction, FortranErrhandlerFunction,
    Handle,
};
use crate::error::Error;

/// The error handlers that the user created.
pub(crate) struct Errhandlers(Table<Created>);

struct Created {
    function: UserFunction,
    /// One reference for the user's handle, for each copy of it that the user got, and for each session that has it.
    references: usize,
}

/// A user's error handler.
#[derive(Clone, Copy)]
pub(crate) enum UserFunction {
    C(ErrhandlerFunction),
    Fortran(FortranErrhandlerFunction),
}

/// What an error handler does.
#[derive(Clone, Copy)]
pub(crate) enum ErrhandlerAction {
    /// Ends the job.
    Fatal,
    /// Ends the process.
    Abort,
    /// Lets the call return the error.
    Return,
    /// Calls the user's function, then lets the call return the error.
    Call(UserFunction),
}

fn is_predefined(handle: Handle) -> bool {
    matches!(handle, ERRORS_ARE_FATAL | ERRORS_ABORT | ERRORS_RETURN)
}

impl Errhandlers {
    pub(crate) const fn new() -> Errhandlers {
        Errhandlers(Table::new(3, Class::Errhandler, "error handler"))
    }

    /// Adds an error handler with one reference.
    pub(crate) fn insert(&mut self, function: UserFunction) -> Handle {
        self.0.insert(Created { function, references: 1 })
    }

    /// Adds a reference.
    pub(crate) fn acquire(&mut self, handle: Handle) -> Result<(), Error> {
        if !is_predefined(handle) {
            self.0.get_mut(handle)?.references += 1;
        }
        Ok(())
    }

    /// Drops a reference, and the error handler with the last one.
    pub(crate) fn release(&mut self, handle: Handle) -> Result<(), Error> {
        if is_predefined(handle) {
            return Ok(());
        }
        let created = self.0.get_mut(handle)?;
        created.references -= 1;
        if created.references == 0 {
            self.0.remove(handle)?;
        }
        Ok(())
    }

    pub(crate) fn action(&self, handle: Handle) -> Result<ErrhandlerAction, Error> {
        Ok(match handle {
            ERRORS_ARE_FATAL => ErrhandlerAction::Fatal,
            ERRORS_ABORT => ErrhandlerAction::Abort,
            ERRORS_RETURN => ErrhandlerAction::Return,
            created => ErrhandlerAction::Call(self.0.get(created)?.function),
        })
    }
}
