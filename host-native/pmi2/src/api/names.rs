//! The name service. Info lists come along in the C interface and mean nothing to any server.

use std::ffi::{c_char, c_int};

use hydrant_core::wire::{Command, Reply, Text};

use super::border::{Info, Room, bytes, named, text};
use super::call;
use crate::error::{Code, Error};
use crate::process::Process;

const NO_NAME: &str = "the name is NULL or empty";

/// Publishes a name.
///
/// # Safety
/// `service_name` and `port` are NULL or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_publish(
    service_name: *const c_char,
    _info_ptr: *const Info,
    port: *const c_char,
) -> c_int {
    call("PMI2_Nameserv_publish", || {
        let process = Process::current()?;
        // SAFETY: pointers as pmi2.h wants them.
        let (name, port) = unsafe { (named(service_name, NO_NAME)?, text(port)) };
        let port = port.ok_or(Error::Argument(Code::InvalidArg, "the port is NULL"))?;
        process.connection.tell(&Command::Publish { name: Text::plain(name), port: Text::plain(port) })
    })
}

/// Looks a name up.
///
/// # Safety
/// `service_name` is NULL or a string; `port` is NULL or has room for `port_len` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info_ptr: *const Info,
    port: *mut c_char,
    port_len: c_int,
) -> c_int {
    call("PMI2_Nameserv_lookup", || {
        let process = Process::current()?;
        // SAFETY: pointers as pmi2.h wants them.
        let (name, room) =
            unsafe { (named(service_name, NO_NAME)?, Room::some(port, port_len, Code::InvalidLength)?) };
        let port =
            process.connection.ask(&Command::Lookup { name: Text::plain(name), wait: None }, |reply| {
                match reply {
                    Reply::Port(port) => Some(bytes(port)),
                    _ => None,
                }
            })?;
        room.need_text(&port)
    })
}

/// Withdraws a name.
///
/// # Safety
/// `service_name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_unpublish(
    service_name: *const c_char,
    _info_ptr: *const Info,
) -> c_int {
    call("PMI2_Nameserv_unpublish", || {
        let process = Process::current()?;
        // SAFETY: a pointer as pmi2.h wants it.
        let name = unsafe { named(service_name, NO_NAME)? };
        process.connection.tell(&Command::Unpublish { name: Text::plain(name) })
    })
}
