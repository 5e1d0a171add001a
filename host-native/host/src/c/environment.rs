//! Environment of a rank, in the form that `execve` takes.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use hydrant_driver::is_foreign_variable;

/// Variables as `NAME=VALUE`, and pointers to them with NULL at their end.
#[derive(Debug)]
pub(crate) struct Environment {
    pointers: Vec<*mut c_char>,
    /// What the pointers point to.
    _texts: Vec<CString>,
}

impl Environment {
    /// Inherited variables without those of other launchers, and a rank's own.
    pub(crate) fn new(inherited: &[&CStr], own: &[(&str, String)]) -> Environment {
        let is_kept = |text: &&&CStr| {
            let name = text.to_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
            !is_foreign_variable(name) && !own.iter().any(|(known, _)| known.as_bytes() == name)
        };
        let inherited = inherited.iter().filter(is_kept).map(|&text| text.to_owned());
        let own = own.iter().map(|(name, value)| {
            CString::new(format!("{name}={value}")).expect("the server has accepted the job's name")
        });
        let texts: Vec<CString> = inherited.chain(own).collect();
        let pointers = texts.iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect();
        Environment { pointers, _texts: texts }
    }

    /// Array of the variables, valid as long as the environment.
    pub(crate) fn as_ptr(&mut self) -> *mut *mut c_char {
        self.pointers.as_mut_ptr()
    }
}
