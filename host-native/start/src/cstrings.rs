//! Argument and environment lists in the form that `execve` takes.

use std::ffi::{CString, c_char};
use std::io::Write;

use crate::LaunchError;

/// C strings with a null-terminated array of pointers to them.
#[derive(Debug)]
pub(crate) struct CStrings {
    /// Never modified, because `pointers` refer to their contents.
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(crate) fn new(strings: Vec<CString>) -> CStrings {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        CStrings { strings, pointers }
    }

    /// The array. Its pointers are valid for the lifetime of `self`.
    pub(crate) fn pointers(&self) -> &[*const c_char] {
        &self.pointers
    }
}

/// Converts a string to a C string. `what` describes it in the error.
pub(crate) fn c_string(bytes: impl Into<Vec<u8>>, what: &'static str) -> Result<CString, LaunchError> {
    CString::new(bytes).map_err(|_| LaunchError::Nul { what })
}

/// Environment of a program's ranks. Only the numbers of a few variables differ between ranks and are rewritten in
/// place, so a job of many ranks formats its variables once.
#[derive(Debug)]
pub(crate) struct EnvBlock {
    shared: CStrings,
    numbers: Vec<Number>,
    /// Variables with one text for each rank of the machine.
    texts: Vec<Vec<CString>>,
    /// Index of their pointers in the array of `shared`.
    first: usize,
}

/// Number at the end of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankNumber {
    /// The rank.
    Rank,
    /// Number of the rank on its machine.
    Local,
    /// One of these: the first for rank 0, starting again after the last.
    Cycle(Vec<u16>),
}

/// Variable that ends in a number.
#[derive(Debug)]
struct Number {
    /// `NAME=`, the text before the number, and room for the number with its NUL.
    buffer: Box<[u8]>,
    /// Where the number starts.
    at: usize,
    which: RankNumber,
}

impl Number {
    fn new(head: &str, which: RankNumber) -> Number {
        let mut buffer = head.as_bytes().to_vec();
        let at = buffer.len();
        buffer.resize(at + NUMBER_ROOM, 0);
        Number { buffer: buffer.into_boxed_slice(), at, which }
    }

    fn set(&mut self, rank: u32, local: u32) -> *const c_char {
        let number = match &self.which {
            RankNumber::Rank => rank,
            RankNumber::Local => local,
            RankNumber::Cycle(cycle) => cycle[rank as usize % cycle.len()].into(),
        };
        self.buffer[self.at..].fill(0);
        write!(&mut self.buffer[self.at..], "{number}").expect("the buffer has room for any u32");
        self.buffer.as_ptr().cast()
    }
}

/// Digits of the largest `u32`, and a NUL.
const NUMBER_ROOM: usize = 11;

impl EnvBlock {
    /// `shared` are whole `NAME=VALUE` strings, `numbered` the names of the variables that hold numbers. `texts` are variables,
    /// each with a `NAME=VALUE` string for each rank of the machine.
    pub(crate) fn new(
        shared: Vec<CString>,
        numbered: &[(&str, RankNumber)],
        texts: Vec<Vec<CString>>,
    ) -> EnvBlock {
        let first = shared.len();
        let mut shared = CStrings::new(shared);
        shared.pointers.resize(first + numbered.len() + texts.len() + 1, std::ptr::null());
        let numbered = numbered.iter().cloned();
        let numbers = numbered.map(|(name, which)| Number::new(&format!("{name}="), which));
        EnvBlock { shared, numbers: numbers.collect(), texts, first }
    }

    /// Adds a variable: `head`, which begins with its name and `=`, and behind it a number.
    pub(crate) fn add(&mut self, head: &str, which: RankNumber) {
        self.numbers.push(Number::new(head, which));
        self.shared.pointers.push(std::ptr::null());
    }

    /// Adds a variable for all ranks, which has no other value yet.
    pub(crate) fn push(&mut self, variable: CString) {
        self.shared.pointers.insert(self.first, variable.as_ptr());
        self.shared.strings.push(variable);
        self.first += 1;
    }

    /// The array for one rank, the `local`th on its machine; its pointers are good until the next call.
    pub(crate) fn for_rank(&mut self, rank: u32, local: u32) -> &[*const c_char] {
        let numbers = self.numbers.iter_mut().map(|number| number.set(rank, local));
        let texts = self.texts.iter().map(|texts| texts[local as usize].as_ptr());
        for (slot, pointer) in self.shared.pointers[self.first..].iter_mut().zip(numbers.chain(texts)) {
            *slot = pointer;
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
    fn each_rank_of_a_machine_has_its_own_texts() {
        let texts = ["G=0,1", "G=2,3"].map(|text| CString::new(text).unwrap());
        let mut block =
            EnvBlock::new(vec![c"A=1".to_owned()], &[("R", RankNumber::Rank)], vec![texts.to_vec()]);
        block.add("P=", RankNumber::Local);
        assert_eq!(strings(block.for_rank(9, 1)), ["A=1", "R=9", "P=1", "G=2,3"]);
        assert_eq!(strings(block.for_rank(8, 0)), ["A=1", "R=8", "P=0", "G=0,1"]);
    }

    #[test]
    fn each_rank_has_its_own_numbers() {
        let shared = vec![CString::new("A=1").unwrap(), CString::new("B=").unwrap()];
        let mut block =
            EnvBlock::new(shared, &[("PMI_RANK", RankNumber::Rank), ("X", RankNumber::Local)], vec![]);
        assert_eq!(
            strings(block.for_rank(4_294_967_295, 4_294_967_294)),
            ["A=1", "B=", "PMI_RANK=4294967295", "X=4294967294"]
        );
        assert_eq!(strings(block.for_rank(7, 0)), ["A=1", "B=", "PMI_RANK=7", "X=0"]);
        block.add("PMI_PORT=h:", RankNumber::Cycle(vec![4000, 4007, 4001]));
        assert_eq!(strings(block.for_rank(7, 2))[2..], ["PMI_RANK=7", "X=2", "PMI_PORT=h:4007"]);
        block.push(CString::new("C=3").unwrap());
        assert_eq!(
            strings(block.for_rank(8, 8)),
            ["A=1", "B=", "C=3", "PMI_RANK=8", "X=8", "PMI_PORT=h:4001"]
        );
    }
}
