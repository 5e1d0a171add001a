//! Options of process managers on the command line of a spawn. There are none, so each function reports that.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_client::c::{CallError, Code, Out, OutBuffer};

use super::KeyVal;
use super::call;

/// Takes an output pointer whose absence has a code of its own.
///
/// # Safety
/// As [`Out::new`].
unsafe fn out<T>(place: *mut T, missing: Code) -> Result<Out<T>, CallError> {
    // SAFETY: guaranteed by the caller.
    unsafe { Out::new(place) }.map_err(|_| CallError::Argument(missing, "an output pointer is NULL"))
}

/// Reports that the first argument is no option of PMI.
///
/// # Safety
/// `num_parsed`, `keyvalp` and `size` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Parse_option(
    num_args: c_int,
    args: *mut *mut c_char,
    num_parsed: *mut c_int,
    keyvalp: *mut *mut KeyVal,
    size: *mut c_int,
) -> c_int {
    call("PMI_Parse_option", || {
        if num_args < 1 {
            return Err(CallError::Argument(Code::InvalidNumArgs, "the number of arguments is below 1"));
        }
        if args.is_null() {
            return Err(CallError::Argument(Code::InvalidArgs, "the arguments are NULL"));
        }
        // SAFETY: valid pointers by the contract of pmi.h.
        let (num_parsed, keyvalp, size) = unsafe {
            (
                out(num_parsed, Code::InvalidNumParsed)?,
                out(keyvalp, Code::InvalidKeyvalp)?,
                out(size, Code::InvalidSize)?,
            )
        };
        num_parsed.set(0);
        keyvalp.set(ptr::null_mut());
        size.set(0);
        Ok(())
    })
}

/// Takes no arguments from a command line.
///
/// # Safety
/// `keyvalp` and `size` are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Args_to_keyval(
    argcp: *mut c_int,
    argvp: *mut *mut *mut c_char,
    keyvalp: *mut *mut KeyVal,
    size: *mut c_int,
) -> c_int {
    call("PMI_Args_to_keyval", || {
        if argcp.is_null() || argvp.is_null() {
            return Err(CallError::Argument(Code::InvalidArg, "the arguments are NULL"));
        }
        // SAFETY: valid pointers by the contract of pmi.h.
        let (keyvalp, size) = unsafe { (Out::new(keyvalp)?, Out::new(size)?) };
        keyvalp.set(ptr::null_mut());
        size.set(0);
        Ok(())
    })
}

/// Frees the empty array of the functions above.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Free_keyvals(_keyvalp: *mut KeyVal, size: c_int) -> c_int {
    call("PMI_Free_keyvals", || match size {
        0 => Ok(()),
        _ => Err(CallError::Argument(Code::InvalidArg, "the array is not from this library")),
    })
}

/// Describes the options of PMI: an empty text.
///
/// # Safety
/// `length` is NULL or an `int` to read and write; `str` is NULL or a buffer of `*length` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_options(str: *mut c_char, length: *mut c_int) -> c_int {
    call("PMI_Get_options", || {
        // SAFETY: a valid pointer by the contract of pmi.h.
        let capacity = unsafe { length.as_ref() }.copied();
        let capacity = capacity.ok_or(CallError::Argument(Code::InvalidArg, "the length is NULL"))?;
        // SAFETY: valid pointers by the contract of pmi.h.
        let (buffer, length) =
            unsafe { (OutBuffer::nonempty(str, capacity, Code::InvalidLength)?, Out::new(length)?) };
        buffer.put_whole_text(b"")?;
        length.set(0);
        Ok(())
    })
}
