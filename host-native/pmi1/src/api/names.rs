//! The name service.

use std::ffi::{c_char, c_int};

use hydrant_client::c::{CallError, Code, OutBuffer, nonempty, text};
use hydrant_client::to_bytes;
use hydrant_wire::limits::PORT_MAX;
use hydrant_wire::{Command, Persistence, Reply, Text};

use super::call;
use crate::process::Process;

const NO_NAME: &str = "the name is NULL or empty";

/// `PMI_MAX_PORT_NAME`: size of the buffer of `PMI_Lookup_name`.
const PORT_SIZE: c_int = PORT_MAX as c_int + 1;

/// Publishes a name.
///
/// # Safety
/// `service_name` and `port` are NULL or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Publish_name(service_name: *const c_char, port: *const c_char) -> c_int {
    call("PMI_Publish_name", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi.h.
        let (name, port) = unsafe { (nonempty(service_name, NO_NAME)?, text(port)) };
        let port = port.ok_or(CallError::Argument(Code::InvalidArg, "the port is NULL"))?;
        let (name, port) = (Text::plain(name), Text::plain(port));
        process.execute(&Command::Publish { name, port, persistence: Persistence::Job })
    })
}

/// Withdraws a name.
///
/// # Safety
/// `service_name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Unpublish_name(service_name: *const c_char) -> c_int {
    call("PMI_Unpublish_name", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi.h.
        let name = unsafe { nonempty(service_name, NO_NAME)? };
        process.execute(&Command::Unpublish { name: Text::plain(name), party: None })
    })
}

/// Looks a name up.
///
/// # Safety
/// `service_name` is NULL or a string; `port` is NULL or a buffer of `PMI_MAX_PORT_NAME` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Lookup_name(service_name: *const c_char, port: *mut c_char) -> c_int {
    call("PMI_Lookup_name", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi.h.
        let (name, buffer) =
            unsafe { (nonempty(service_name, NO_NAME)?, OutBuffer::new(port, PORT_SIZE, Code::InvalidArg)?) };
        let lookup = Command::Lookup { name: Text::plain(name), wait: None, party: None };
        let port = process.request(&lookup, |reply| match reply {
            Reply::Port(port) => Some(to_bytes(port)),
            _ => None,
        })?;
        buffer.put_whole_text(&port)
    })
}
