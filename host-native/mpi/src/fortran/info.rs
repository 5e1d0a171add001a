//! `MPI_INFO_*`.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;

use super::arguments::{Buffer, KEY_SIZE, c_string, create, handle, pad, release, with_length};
use super::fortran;
use super::route::{Calls, Route, route, symbol_name};
use crate::abi::SUCCESS;
use crate::exports::{
    MPI_Info_create, MPI_Info_create_env, MPI_Info_delete, MPI_Info_dup, MPI_Info_free, MPI_Info_get,
    MPI_Info_get_nkeys, MPI_Info_get_nthkey, MPI_Info_get_string, MPI_Info_get_valuelen, MPI_Info_set,
};

fortran! {
    Calls::Forwarded;
    fn mpi_info_create_, mpi_info_create_f08_(info: *mut c_int) create(info, |out| MPI_Info_create(out));
    fn mpi_info_create_env_, mpi_info_create_env_f08_(info: *mut c_int)
        create(info, |out| MPI_Info_create_env(0, ptr::null(), out));
    fn mpi_info_set_, mpi_info_set_f08_(
        info: *const c_int, key: *const c_char, value: *const c_char; key_len, value_len
    ) MPI_Info_set(handle(info), c_string(key, key_len).as_ptr(), c_string(value, value_len).as_ptr());
    fn mpi_info_delete_, mpi_info_delete_f08_(info: *const c_int, key: *const c_char; key_len)
        MPI_Info_delete(handle(info), c_string(key, key_len).as_ptr());
    fn mpi_info_get_, mpi_info_get_f08_(
        info: *const c_int, key: *const c_char, valuelen: *const c_int, value: *mut c_char, flag: *mut c_int;
        key_len, value_len
    ) get(info, key, valuelen, value, flag, key_len, value_len);
    fn mpi_info_get_valuelen_, mpi_info_get_valuelen_f08_(
        info: *const c_int, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int; key_len
    ) MPI_Info_get_valuelen(handle(info), c_string(key, key_len).as_ptr(), valuelen, flag);
    fn mpi_info_get_string_, mpi_info_get_string_f08_(
        info: *const c_int, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int;
        key_len, value_len
    ) {
        let key = c_string(key, key_len);
        let call = |size, buffer| MPI_Info_get_string(handle(info), key.as_ptr(), size, buffer, flag);
        with_length(buflen, value, value_len, call, || *flag != 0)
    };
    fn mpi_info_get_nkeys_, mpi_info_get_nkeys_f08_(info: *const c_int, nkeys: *mut c_int)
        MPI_Info_get_nkeys(handle(info), nkeys);
    fn mpi_info_get_nthkey_, mpi_info_get_nthkey_f08_(
        info: *const c_int, n: *const c_int, key: *mut c_char; key_len
    ) {
        let mut buffer = Buffer::new(KEY_SIZE);
        let code = MPI_Info_get_nthkey(handle(info), *n, buffer.out());
        if code == SUCCESS {
            pad(buffer.text(), key, key_len);
        }
        code
    };
    fn mpi_info_dup_, mpi_info_dup_f08_(info: *const c_int, newinfo: *mut c_int)
        create(newinfo, |out| MPI_Info_dup(handle(info), out));
    fn mpi_info_free_, mpi_info_free_f08_(info: *mut c_int) release(info, |info| MPI_Info_free(info));
}

/// `MPI_INFO_GET`.
///
/// # Safety
/// As for the Fortran prototype, with the lengths of the character arguments.
unsafe fn get(
    info: *const c_int,
    key: *const c_char,
    valuelen: *const c_int,
    value: *mut c_char,
    flag: *mut c_int,
    key_len: usize,
    value_len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (info, key, valuelen) = unsafe { (handle(info), c_string(key, key_len), *valuelen) };
    let room = usize::try_from(valuelen).map_or(0, |valuelen| valuelen.min(value_len));
    let mut buffer = Buffer::new(room + 1);
    // A negative length is passed on, and is an error.
    let length = if valuelen > 0 { room as c_int } else { valuelen };
    // SAFETY: guaranteed by the caller, and the buffer has room for NUL.
    let code = unsafe { MPI_Info_get(info, key.as_ptr(), length, buffer.out(), flag) };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if code == SUCCESS && *flag != 0 {
            pad(buffer.text(), value, value_len);
        }
    }
    code
}
