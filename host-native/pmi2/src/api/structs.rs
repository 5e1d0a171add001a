//! Structures of `pmi2.h`.

use std::ffi::{c_char, c_int, c_void};

/// `MPID_Info`: one pair of an info list. The functions read only key and value.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields of pmi2.h")]
pub struct Info {
    pub handle: c_int,
    pub pobj_mutex: c_int,
    pub ref_count: c_int,
    pub next: *mut Info,
    pub key: *mut c_char,
    pub value: *mut c_char,
}

/// `PMI2_Connect_comm_t`: a channel between two jobs whose servers are not connected.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields of pmi2.h")]
pub struct ConnectComm {
    pub read: Option<unsafe extern "C" fn(buf: *mut c_void, maxlen: c_int, ctx: *mut c_void) -> c_int>,
    pub write: Option<unsafe extern "C" fn(buf: *const c_void, len: c_int, ctx: *mut c_void) -> c_int>,
    pub ctx: *mut c_void,
    pub is_master: c_int,
}
