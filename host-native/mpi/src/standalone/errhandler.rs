//! Error handlers of sessions, and the handling of errors (MPI 5.0, chapter 9).

use std::env;
use std::ffi::c_int;
use std::io::{self, Write};
use std::process;

use crate::abi::{Abi, ERRHANDLER_NULL, Handle, SESSION_NULL, SUCCESS};
use crate::cpointer::put;
use crate::error::Error;
use crate::objects::{ErrhandlerAction, Objects, UserFunction, lock};

/// Names the initial error handler, which handles errors without a session: `mpi_errors_are_fatal` (default),
/// `mpi_errors_abort` or `mpi_errors_return`.
const INITIAL: &str = "HYDRANT_MPI_INITIAL_ERRHANDLER";

/// The error handler of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The initial error handler.
    Initial,
    /// That of a session, or the initial one if the handle is invalid.
    Session(Handle),
    /// This one, or the initial one if the handle is invalid.
    Errhandler(Handle),
    /// That of the session from which a group is derived, or the initial one if either handle is invalid.
    Group(Handle),
}

impl Target {
    /// Returns the action, and the session that is passed to a user's function.
    fn resolve(self, objects: &Objects) -> (ErrhandlerAction, Handle) {
        let of_session = |session| {
            let handle = objects.sessions.get(session).map(|session| session.errhandler);
            (handle.and_then(|handle| objects.errhandlers.action(handle)), session)
        };
        let (action, session) = match self {
            Target::Initial => (Ok(initial()), SESSION_NULL),
            Target::Session(session) => of_session(session),
            Target::Group(group) => {
                of_session(objects.groups.get(group).map_or(SESSION_NULL, |group| group.session))
            }
            Target::Errhandler(handle) => (objects.errhandlers.action(handle), SESSION_NULL),
        };
        (action.unwrap_or_else(|_| initial()), session)
    }
}

fn initial() -> ErrhandlerAction {
    match env::var_os(INITIAL).as_deref().and_then(|name| name.to_str()) {
        Some("mpi_errors_return") => ErrhandlerAction::Return,
        Some("mpi_errors_abort") => ErrhandlerAction::Abort,
        _ => ErrhandlerAction::Fatal,
    }
}

/// Calls the error handler if `result` is an error. Returns the return value of the call.
pub(crate) fn finish(target: Target, call: &str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(error) => {
            let class = error.class();
            raise(target, class.code(Abi::Standard), &format!("{call}: {}: {error}", class.name()))
        }
    }
}

/// Calls an error handler. Returns the code if the handler returns.
fn raise(target: Target, code: c_int, text: &str) -> c_int {
    let (action, mut session) = target.resolve(&lock());
    let print = |consequence| {
        // Standard error may be closed. The exit status reports the error too.
        let _ = writeln!(io::stderr(), "hydrant MPI: {text}\nhydrant MPI: {consequence}");
    };
    match action {
        ErrhandlerAction::Return => {}
        ErrhandlerAction::Call(function) => {
            let mut code = code;
            match function {
                // SAFETY: the user registered it as an error handler of sessions; both pointers are valid locals.
                UserFunction::C(function) => unsafe { function(&mut session, &mut code) },
                UserFunction::Fortran(function) => {
                    let mut session = session as c_int;
                    // SAFETY: as above.
                    unsafe { function(&mut session, &mut code) };
                }
            }
        }
        ErrhandlerAction::Abort => {
            print("aborting this process (MPI_ERRORS_ABORT)");
            process::exit(code);
        }
        ErrhandlerAction::Fatal => {
            print("aborting the job (MPI_ERRORS_ARE_FATAL)");
            // A signal ends the job even if no rank has initialized PMI.
            process::abort();
        }
    }
    code
}

/// `MPI_Session_create_errhandler`.
///
/// # Safety
/// `function` is an error handler of sessions; `out` is null or may be written to.
pub(crate) unsafe fn create(function: Option<UserFunction>, out: *mut Handle) -> Result<(), Error> {
    let function = function.ok_or_else(|| Error::null("the function"))?;
    if out.is_null() {
        return Err(Error::null("the error handler"));
    }
    let handle = lock().errhandlers.insert(function);
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, handle, "the error handler") }
}

/// `MPI_Errhandler_free`.
///
/// # Safety
/// `handle` is null or may be read and written.
pub(crate) unsafe fn free(handle: *mut Handle) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { handle.as_mut() }.ok_or_else(|| Error::null("the error handler"))?;
    if *handle == ERRHANDLER_NULL {
        return Err(Error::ErrhandlerNull);
    }
    lock().errhandlers.release(*handle)?;
    *handle = ERRHANDLER_NULL;
    Ok(())
}

/// `MPI_Session_set_errhandler`.
pub(crate) fn set(session: Handle, errhandler: Handle) -> Result<(), Error> {
    let mut objects = lock();
    objects.sessions.get(session)?;
    objects.errhandlers.acquire(errhandler)?;
    let previous = std::mem::replace(&mut objects.sessions.get_mut(session)?.errhandler, errhandler);
    objects.errhandlers.release(previous)
}

/// `MPI_Session_get_errhandler`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn get(session: Handle, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(Error::null("the error handler"));
    }
    let mut objects = lock();
    let handle = objects.sessions.get(session)?.errhandler;
    objects.errhandlers.acquire(handle)?;
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, handle, "the error handler") }
}

/// `MPI_Session_call_errhandler`: succeeds if the handler returns.
pub(crate) fn call(session: Handle, code: c_int) -> c_int {
    let valid = lock().sessions.get(session).map(|_| ());
    if valid.is_err() {
        return finish(Target::Initial, "MPI_Session_call_errhandler", valid);
    }
    raise(Target::Session(session), code, &format!("MPI_Session_call_errhandler with error code {code}"));
    SUCCESS
}
