//! The name service. PMI-2 does not transmit the info lists of these functions.

use std::ffi::{c_char, c_int};

use hydrant_client::c::{CallError, Code, OutBuffer, nonempty, text};
use hydrant_client::to_bytes;
use hydrant_wire::{Command, Persistence, Reply, Text};

use super::call;
use super::structs::Info;
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
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (name, port) = unsafe { (nonempty(service_name, NO_NAME)?, text(port)) };
        let port = port.ok_or(CallError::Argument(Code::InvalidArg, "the port is NULL"))?;
        let (name, port) = (Text::plain(name), Text::plain(port));
        let publish = Command::Publish { name, port, persistence: Persistence::Job };
        Ok(process.connection.execute(&publish)?)
    })
}

/// Looks a name up.
///
/// # Safety
/// `service_name` is NULL or a string; `port` is NULL or a buffer of `port_len` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info_ptr: *const Info,
    port: *mut c_char,
    port_len: c_int,
) -> c_int {
    call("PMI2_Nameserv_lookup", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (name, buffer) = unsafe {
            (nonempty(service_name, NO_NAME)?, OutBuffer::nonempty(port, port_len, Code::InvalidLength)?)
        };
        let port = process.connection.request(
            &Command::Lookup { name: Text::plain(name), wait: None, party: None },
            |reply| match reply {
                Reply::Port(port) => Some(to_bytes(port)),
                _ => None,
            },
        )?;
        buffer.put_whole_text(&port)
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
        // SAFETY: a valid pointer by the contract of pmi2.h.
        let name = unsafe { nonempty(service_name, NO_NAME)? };
        Ok(process.connection.execute(&Command::Unpublish { name: Text::plain(name), party: None })?)
    })
}
