//! `MPI_SESSION_*` without the queries of process sets, and error handlers of sessions.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::arguments::{create, handle, release};
use super::fortran;
use super::route::{Calls, Route, route, symbol_name};
use crate::abi::{ErrhandlerFunction, FortranErrhandlerFunction, Handle};
use crate::exports::{
    MPI_Errhandler_free, MPI_Session_call_errhandler, MPI_Session_create_errhandler, MPI_Session_finalize,
    MPI_Session_get_errhandler, MPI_Session_get_info, MPI_Session_init, MPI_Session_set_errhandler,
};
use crate::interpose::MpiLibrary;
use crate::objects::UserFunction;
use crate::standalone::errhandler::{self, Target, finish};

fortran! {
    Calls::Forwarded;
    fn mpi_session_init_, mpi_session_init_f08_(
        info: *const c_int, errhandler: *const c_int, session: *mut c_int
    ) create(session, |out| MPI_Session_init(handle(info), handle(errhandler), out));
    fn mpi_session_finalize_, mpi_session_finalize_f08_(session: *mut c_int)
        release(session, |session| MPI_Session_finalize(session));
    fn mpi_session_get_info_, mpi_session_get_info_f08_(session: *const c_int, info: *mut c_int)
        create(info, |out| MPI_Session_get_info(handle(session), out));
    fn mpi_session_create_errhandler_, mpi_session_create_errhandler_f08_(
        function: Option<FortranErrhandlerFunction>, errhandler: *mut c_int
    ) create(errhandler, |out| create_errhandler(function, out));
    fn mpi_session_set_errhandler_, mpi_session_set_errhandler_f08_(
        session: *const c_int, errhandler: *const c_int
    ) MPI_Session_set_errhandler(handle(session), handle(errhandler));
    fn mpi_session_get_errhandler_, mpi_session_get_errhandler_f08_(
        session: *const c_int, errhandler: *mut c_int
    ) create(errhandler, |out| MPI_Session_get_errhandler(handle(session), out));
    fn mpi_session_call_errhandler_, mpi_session_call_errhandler_f08_(session: *const c_int, code: *const c_int)
        MPI_Session_call_errhandler(handle(session), *code);
    fn mpi_errhandler_free_, mpi_errhandler_free_f08_(errhandler: *mut c_int)
        release(errhandler, |errhandler| MPI_Errhandler_free(errhandler));
}

/// `MPI_SESSION_CREATE_ERRHANDLER`.
///
/// # Safety
/// `function` is an error handler of sessions; `out` may be written to.
unsafe fn create_errhandler(function: Option<FortranErrhandlerFunction>, out: *mut Handle) -> c_int {
    if MpiLibrary::loaded().is_some() {
        // SAFETY: handles of such a library are ints (see `route`), so that it passes the same to functions of both languages.
        let function =
            unsafe { transmute::<Option<FortranErrhandlerFunction>, Option<ErrhandlerFunction>>(function) };
        // SAFETY: guaranteed by the caller.
        return unsafe { MPI_Session_create_errhandler(function, out) };
    }
    // SAFETY: guaranteed by the caller.
    let result = unsafe { errhandler::create(function.map(UserFunction::Fortran), out) };
    finish(Target::Initial, "MPI_Session_create_errhandler", result)
}
