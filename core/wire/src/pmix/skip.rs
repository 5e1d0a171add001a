//! Lengths of values of all types, with a limit for nesting.

use super::reader::Reader;
use super::{Integers, kind};

/// Maximum depth of nested values. Clients send four: an array of INFOs, one of which is an array of PROCs.
pub const DEPTH_MAX: u32 = 8;

/// Encodings that types share.
#[derive(Clone, Copy)]
enum Shape {
    /// No bytes.
    Nothing,
    Byte,
    /// Integers, with the width of the fixed encoding.
    Signed(u32),
    Unsigned(u64),
    Size,
    Int,
    Uint,
    Pid,
    TwoSigned,
    String,
    TwoStrings,
    Proc,
    Value,
    Info,
    KeyValue,
    PublishedData,
    Blob,
    Buffer,
    Array,
    Variable,
    Attribute,
    ProcInfo,
    NodePid,
}

/// Returns the encoding of a type, or `None` for an unknown one.
const fn shape(kind: u16) -> Option<Shape> {
    Some(match kind {
        0 => Shape::Nothing,
        1 | 2 | 7 | 12 | 30..=34 | 37 | 43 | 50 | 51 => Shape::Byte,
        3 | 16 | 17 | 60 => Shape::String,
        4 => Shape::Size,
        5 => Shape::Pid,
        6 => Shape::Int,
        8 => Shape::Signed(2),
        9 | 20 => Shape::Signed(4),
        10 => Shape::Signed(8),
        11 => Shape::Uint,
        13 | 36 | 45 | 58 => Shape::Unsigned(2),
        14 | 35 | 40 => Shape::Unsigned(4),
        15 | 19 | 57 | 66..=69 => Shape::Unsigned(8),
        18 => Shape::TwoSigned,
        21 => Shape::Value,
        22 => Shape::Proc,
        24 => Shape::Info,
        25 => Shape::PublishedData,
        26 => Shape::Buffer,
        27 | 42 | 49 | 59 | 65 => Shape::Blob,
        28 => Shape::KeyValue,
        38 => Shape::ProcInfo,
        39 => Shape::Array,
        46 => Shape::Variable,
        48 => Shape::Attribute,
        52 | 56 => Shape::TwoStrings,
        73 => Shape::NodePid,
        _ => return None,
    })
}

impl Reader<'_> {
    /// Reads over a value of this type. Returns `None` for truncated bytes, unknown types and nesting over
    /// [`DEPTH_MAX`].
    pub fn skip(&mut self, kind: u16) -> Option<()> {
        self.skip_nested(kind, 0)
    }

    fn skip_nested(&mut self, kind: u16, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match shape(kind)? {
            Shape::Nothing => {}
            Shape::Byte => drop(self.byte()?),
            Shape::Signed(width) => drop(self.signed(width)?),
            Shape::Unsigned(width) => drop(self.unsigned(width)?),
            Shape::Size => drop(self.size()?),
            Shape::Int => drop(self.int()?),
            Shape::Uint => self.skip_prefixed()?,
            Shape::Pid => {
                if self.integers() == Integers::Flexible {
                    self.unsigned(2)?;
                }
                self.skip_prefixed()?;
            }
            Shape::TwoSigned => {
                self.signed(8)?;
                self.signed(8)?;
            }
            Shape::String => drop(self.string()?),
            Shape::TwoStrings => self.skip_strings(2)?,
            Shape::Proc => self.skip_proc()?,
            Shape::Value => self.skip_value(depth)?,
            Shape::Info => {
                self.string()?;
                self.uint32()?;
                self.skip_value(depth)?;
            }
            Shape::KeyValue => {
                self.string()?;
                self.skip_value(depth)?;
            }
            Shape::PublishedData => {
                self.skip_proc()?;
                self.string()?;
                self.skip_value(depth)?;
            }
            Shape::Blob => drop(self.blob()?),
            Shape::Buffer => {
                self.byte()?;
                self.blob()?;
            }
            Shape::Array => self.skip_array(depth)?,
            Shape::Variable => {
                self.skip_strings(2)?;
                self.byte()?;
            }
            Shape::Attribute => {
                self.skip_strings(2)?;
                self.data_type()?;
                let count = self.count()?;
                self.skip_strings(count)?;
            }
            Shape::ProcInfo => {
                self.skip_proc()?;
                self.skip_strings(2)?;
                self.skip_nested(kind::PID, depth + 1)?;
                self.byte()?;
            }
            Shape::NodePid => {
                self.skip_proc()?;
                self.skip_nested(kind::PID, depth + 1)?;
            }
        }
        Some(())
    }

    /// Reads over a type and a value of it.
    fn skip_value(&mut self, depth: u32) -> Option<()> {
        let kind = self.data_type()?;
        self.skip_nested(kind, depth + 1)
    }

    fn skip_array(&mut self, depth: u32) -> Option<()> {
        let kind = self.data_type()?;
        // An array that is absent has no number of elements.
        let count = if kind == 0 { 0 } else { self.size()? };
        for _ in 0..count {
            let before = self.rest().len();
            self.skip_nested(kind, depth + 1)?;
            // Elements without bytes would make the count the only limit of this loop.
            (self.rest().len() < before).then_some(())?;
        }
        Some(())
    }

    /// Reads over a 32-bit number with its type in front in the fixed encoding.
    fn skip_prefixed(&mut self) -> Option<()> {
        self.prefix(kind::UINT32)?.then_some(())?;
        self.unsigned(4).map(drop)
    }

    fn skip_proc(&mut self) -> Option<()> {
        self.string()?;
        self.uint32().map(drop)
    }

    fn skip_strings(&mut self, count: u32) -> Option<()> {
        (0..count).try_for_each(|_| self.string().map(drop))
    }
}
