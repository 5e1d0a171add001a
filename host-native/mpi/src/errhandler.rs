//! Error handlers, and what errors lead to (MPI 5.0, chapter 9).

use std::env;
use std::ffi::c_int;
use std::io::{self, Write};
use std::process;

use crate::abi::{
    Abi, Class, ERRHANDLER_NULL, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN, Error, Handle, SUCCESS,
};
use crate::cstr::{null, put};
use crate::state::{State, Table, state};

/// `MPI_Session_errhandler_function`
pub(crate) type Function = unsafe extern "C" fn(*mut Handle, *mut c_int, ...);

/// Names the handler of errors that no session has: `mpi_errors_are_fatal` where it is not set, `mpi_errors_abort`, or
/// `mpi_errors_return`.
const INITIAL: &str = "HYDRANT_MPI_INITIAL_ERRHANDLER";

/// The handlers that users have made.
pub(crate) struct Errhandlers(Table<Made>);

struct Made {
    function: Function,
    /// One for the user's handle, each of them that was given out, and each session that has it.
    uses: usize,
}

/// Whose handler hears of an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    /// Nobody's: the initial one.
    Initial,
    /// This session's, or nobody's where that is none.
    Session(Handle),
    /// This handler, where it is one.
    Handler(Handle),
}

/// What a handler does.
#[derive(Clone, Copy)]
enum Handler {
    /// Ends the job.
    Fatal,
    /// Ends the process.
    Abort,
    /// Has the call return the error.
    Return,
    /// Does what the user's function does, then as above. It is told of this session.
    Call(Function, Handle),
}

impl Errhandlers {
    pub(crate) const fn new() -> Errhandlers {
        Errhandlers(Table::new(3, Class::Errhandler, "error"))
    }

    /// Somebody uses it from now on.
    pub(crate) fn hold(&mut self, handle: Handle) -> Result<(), Error> {
        if !matches!(handle, ERRORS_ARE_FATAL | ERRORS_ABORT | ERRORS_RETURN) {
            self.0.get_mut(handle)?.uses += 1;
        }
        Ok(())
    }

    /// Somebody uses it no more.
    pub(crate) fn release(&mut self, handle: Handle) -> Result<(), Error> {
        if matches!(handle, ERRORS_ARE_FATAL | ERRORS_ABORT | ERRORS_RETURN) {
            return Ok(());
        }
        let made = self.0.get_mut(handle)?;
        made.uses -= 1;
        if made.uses == 0 {
            self.0.remove(handle)?;
        }
        Ok(())
    }

    fn handler(&self, handle: Handle, session: Handle) -> Result<Handler, Error> {
        Ok(match handle {
            ERRORS_ARE_FATAL => Handler::Fatal,
            ERRORS_ABORT => Handler::Abort,
            ERRORS_RETURN => Handler::Return,
            made => Handler::Call(self.0.get(made)?.function, session),
        })
    }
}

impl State {
    fn handler(&self, on: On) -> Handler {
        let of_session = |session| {
            let handle = self.sessions.get(session)?.errhandler;
            self.errhandlers.handler(handle, session)
        };
        let found = match on {
            On::Initial => Ok(initial()),
            On::Session(session) => of_session(session),
            On::Handler(handle) => self.errhandlers.handler(handle, crate::abi::SESSION_NULL),
        };
        found.unwrap_or_else(|_| initial())
    }
}

fn initial() -> Handler {
    match env::var_os(INITIAL).as_deref().and_then(|name| name.to_str()) {
        Some("mpi_errors_return") => Handler::Return,
        Some("mpi_errors_abort") => Handler::Abort,
        _ => Handler::Fatal,
    }
}

/// What a call returns, once its error has been handled.
pub(crate) fn finish(on: On, call: &str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(error) => raise(on, error.class.code(Abi::Standard), &format!("{call}: {error}")),
    }
}

/// Has an error handled; its code, where the handler comes back.
fn raise(on: On, code: c_int, text: &str) -> c_int {
    let handler = state().handler(on);
    let say = |what| {
        // Where nobody reads it there is nobody to tell.
        let _ = writeln!(io::stderr(), "hydrant MPI: {text}\nhydrant MPI: {what}");
    };
    match handler {
        Handler::Return => {}
        Handler::Call(function, mut session) => {
            let mut code = code;
            // SAFETY: the user made it an error handler of sessions; both pointers lead to locals.
            unsafe { function(&mut session, &mut code) };
        }
        Handler::Abort => {
            say("this process ends (MPI_ERRORS_ABORT)");
            process::exit(code);
        }
        Handler::Fatal => {
            say("the job ends (MPI_ERRORS_ARE_FATAL)");
            // By a signal, which ends the job also where no rank has ever initialized PMI.
            process::abort();
        }
    }
    code
}

/// # Safety
/// As the C prototype says: `function` handles sessions' errors.
pub(crate) unsafe fn create(function: Option<Function>, out: *mut Handle) -> Result<(), Error> {
    let function = function.ok_or_else(|| null("the function"))?;
    if out.is_null() {
        return Err(null("the error handler"));
    }
    let handle = state().errhandlers.0.insert(Made { function, uses: 1 });
    // SAFETY: as the caller says.
    unsafe { put(out, handle, "the error handler") }
}

/// # Safety
/// `handle` is null or may be read and written.
pub(crate) unsafe fn free(handle: *mut Handle) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let handle = unsafe { handle.as_mut() }.ok_or_else(|| null("the error handler"))?;
    if *handle == ERRHANDLER_NULL {
        return Err(Error::new(Class::Errhandler, "MPI_ERRHANDLER_NULL cannot be freed"));
    }
    state().errhandlers.release(*handle)?;
    *handle = ERRHANDLER_NULL;
    Ok(())
}

pub(crate) fn set(session: Handle, errhandler: Handle) -> Result<(), Error> {
    let mut state = state();
    state.sessions.get(session)?;
    state.errhandlers.hold(errhandler)?;
    let before = std::mem::replace(&mut state.sessions.get_mut(session)?.errhandler, errhandler);
    state.errhandlers.release(before)
}

/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn get(session: Handle, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("the error handler"));
    }
    let mut state = state();
    let handle = state.sessions.get(session)?.errhandler;
    state.errhandlers.hold(handle)?;
    // SAFETY: as the caller says.
    unsafe { put(out, handle, "the error handler") }
}

/// `MPI_Session_call_errhandler`: succeeds when the handler comes back.
pub(crate) fn call(session: Handle, code: c_int) -> c_int {
    let known = state().sessions.get(session).map(|_| ());
    if known.is_err() {
        return finish(On::Initial, "MPI_Session_call_errhandler", known);
    }
    raise(On::Session(session), code, &format!("MPI_Session_call_errhandler with error code {code}"));
    SUCCESS
}
