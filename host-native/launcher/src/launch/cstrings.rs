//! Argument and environment lists in the form that `execve` takes them.

use std::ffi::{CString, OsStr, c_char};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::error::RunError;

/// A list of C strings with the array of pointers to them, closed by a null pointer.
#[derive(Debug)]
pub(crate) struct CStrings {
    /// Never touched: the pointers lead here.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(crate) fn new(strings: Vec<CString>) -> CStrings {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        CStrings { _strings: strings, pointers }
    }

    /// The array; its pointers are good for as long as `self` is.
    pub(crate) fn pointers(&self) -> &[*const c_char] {
        &self.pointers
    }
}

/// The bytes as a C string; `what` names them in the error.
pub(crate) fn c_string(bytes: &OsStr, what: &'static str) -> Result<CString, RunError> {
    CString::new(bytes.as_bytes()).map_err(|_| RunError::Nul { what })
}

/// An environment that is the same for all ranks of a program except for a few numbers, which are rewritten in place
/// from rank to rank: a job of many ranks formats its variables once.
#[derive(Debug)]
pub(crate) struct EnvBlock {
    shared: CStrings,
    /// `NAME=` and room for a number with its NUL, and where the number starts.
    numbers: Vec<(Box<[u8]>, usize)>,
    /// Where in `shared`'s array the pointers to them stand.
    first: usize,
}

/// Digits of the largest `u32`, and a NUL.
const NUMBER_ROOM: usize = 11;

impl EnvBlock {
    /// `shared` are whole `NAME=VALUE` strings, `numbered` the names of the variables that hold the rank.
    pub(crate) fn new(shared: Vec<CString>, numbered: &[&str]) -> EnvBlock {
        let first = shared.len();
        let mut shared = CStrings::new(shared);
        shared.pointers.resize(first + numbered.len() + 1, std::ptr::null());
        let numbers = numbered.iter().map(|name| {
            let mut buffer = format!("{name}=").into_bytes();
            let at = buffer.len();
            buffer.resize(at + NUMBER_ROOM, 0);
            (buffer.into_boxed_slice(), at)
        });
        EnvBlock { shared, numbers: numbers.collect(), first }
    }

    /// The array for one rank; its pointers are good until the next call.
    pub(crate) fn for_rank(&mut self, rank: u32) -> &[*const c_char] {
        for (slot, (buffer, at)) in self.shared.pointers[self.first..].iter_mut().zip(&mut self.numbers) {
            buffer[*at..].fill(0);
            write!(&mut buffer[*at..], "{rank}").expect("the buffer has room for any u32");
            *slot = buffer.as_ptr().cast();
        }
        &self.shared.pointers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn strings(pointers: &[*const c_char]) -> Vec<String> {
        let (last, pointers) = pointers.split_last().expect("there is a null pointer at the end");
        assert!(last.is_null());
        // SAFETY: the pointers come from an `EnvBlock` that outlives this call.
        pointers.iter().map(|&p| unsafe { CStr::from_ptr(p) }.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_rank_has_its_own_numbers() {
        let shared = vec![CString::new("A=1").unwrap(), CString::new("B=").unwrap()];
        let mut block = EnvBlock::new(shared, &["PMI_RANK", "X"]);
        assert_eq!(
            strings(block.for_rank(4_294_967_295)),
            ["A=1", "B=", "PMI_RANK=4294967295", "X=4294967295"]
        );
        assert_eq!(strings(block.for_rank(7)), ["A=1", "B=", "PMI_RANK=7", "X=7"]);
    }
}
