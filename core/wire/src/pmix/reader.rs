//! Reader of PMIx elements.

use super::{Integers, kind};

/// Maximum length of a namespace in bytes, without NUL.
const NAMESPACE_MAX: usize = 255;
/// Maximum length of a key in bytes, without NUL.
const KEY_MAX: usize = 511;

/// Reader of elements from the front of untrusted bytes.
///
/// All methods return `None` if the bytes end early, or are not of the type. The position is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
    integers: Integers,
}

/// Process, or several: a namespace and a rank, which may be [`WILDCARD`](super::WILDCARD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proc<'a> {
    /// The namespace.
    pub namespace: &'a [u8],
    /// The rank.
    pub rank: u32,
}

/// Process id on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePid<'a> {
    /// Name of the host, if it is given.
    pub host: Option<&'a [u8]>,
    /// Number of the host, or [`u32::MAX`].
    pub number: u32,
    /// The process id, or [`u32::MAX`] for all processes of the host.
    pub pid: u32,
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(integers: Integers, bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, integers }
    }

    /// Returns the bytes that have not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether all bytes have been read.
    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) const fn integers(&self) -> Integers {
        self.integers
    }

    /// Returns the bytes that `read` reads.
    pub(super) fn span(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Option<()>) -> Option<&'a [u8]> {
        let start = self.rest;
        read(self)?;
        start.get(..start.len() - self.rest.len())
    }

    /// Reads `len` bytes.
    pub(super) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// Reads an integer of seven bits a byte. The ninth byte has eight.
    fn flexible(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..8 {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Some(number);
            }
        }
        Some(number | u64::from(self.byte()?) << 56)
    }

    /// Reads a big-endian integer of `width` bytes.
    fn fixed(&mut self, width: u64) -> Option<u64> {
        Some(self.take(width)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads an unsigned integer, of `width` bytes in the fixed encoding.
    pub(super) fn unsigned(&mut self, width: u64) -> Option<u64> {
        match self.integers {
            Integers::Flexible => self.flexible(),
            Integers::Fixed => self.fixed(width),
        }
    }

    /// Reads a signed integer, of `width` bytes in the fixed encoding.
    pub(super) fn signed(&mut self, width: u32) -> Option<i64> {
        Some(match self.integers {
            Integers::Flexible => {
                let folded = self.flexible()?;
                (folded >> 1) as i64 ^ -((folded & 1) as i64)
            }
            Integers::Fixed => {
                let shift = 64 - 8 * width;
                ((self.fixed(width.into())? << shift) as i64) >> shift
            }
        })
    }

    /// Reads the number of a type that the fixed encoding puts in front of some integers. Returns false if it is
    /// another one.
    pub(super) fn prefix(&mut self, expected: u16) -> Option<bool> {
        match self.integers {
            Integers::Flexible => Some(true),
            Integers::Fixed => Some(self.fixed(2)? == u64::from(expected)),
        }
    }

    /// Reads a SIZE.
    pub fn size(&mut self) -> Option<u64> {
        self.prefix(kind::UINT64)?.then_some(())?;
        self.unsigned(8)
    }

    /// Reads an INT.
    pub fn int(&mut self) -> Option<i32> {
        self.prefix(kind::INT32)?.then_some(())?;
        self.int32()
    }

    /// Reads an INT that is not negative.
    pub(super) fn natural(&mut self) -> Option<u32> {
        u32::try_from(self.int()?).ok()
    }

    /// Reads an INT32 or a STATUS.
    pub fn int32(&mut self) -> Option<i32> {
        i32::try_from(self.signed(4)?).ok()
    }

    /// Reads a UINT32, a PROC_RANK or the flags of an INFO.
    pub fn uint32(&mut self) -> Option<u32> {
        u32::try_from(self.unsigned(4)?).ok()
    }

    /// Reads the number of a type.
    pub fn data_type(&mut self) -> Option<u16> {
        u16::try_from(self.unsigned(2)?).ok()
    }

    /// Reads a STRING, without its NUL. `Some(None)` is the null string.
    pub fn string(&mut self) -> Option<Option<&'a [u8]>> {
        let len = u64::try_from(self.int32()?).ok()?;
        if len == 0 {
            return Some(None);
        }
        match self.take(len)? {
            [text @ .., 0] if !text.contains(&0) => Some(Some(text)),
            _ => None,
        }
    }

    /// Reads a STRING other than the null string.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        self.string()?
    }

    /// Reads a key.
    pub fn key(&mut self) -> Option<&'a [u8]> {
        self.text().filter(|key| key.len() <= KEY_MAX)
    }

    /// Reads a namespace.
    pub fn namespace(&mut self) -> Option<&'a [u8]> {
        self.text().filter(|name| name.len() <= NAMESPACE_MAX)
    }

    /// Reads a PROC.
    pub fn proc(&mut self) -> Option<Proc<'a>> {
        Some(Proc { namespace: self.namespace()?, rank: self.uint32()? })
    }

    /// Reads a NODE_PID.
    pub fn node_pid(&mut self) -> Option<NodePid<'a>> {
        let (host, number) = (self.string()?, self.uint32()?);
        if self.integers == Integers::Flexible {
            self.unsigned(2)?;
        }
        self.prefix(kind::UINT32)?.then_some(())?;
        Some(NodePid { host, number, pid: self.uint32()? })
    }

    /// Reads a length and as many bytes: the value of a BYTE_OBJECT.
    pub fn blob(&mut self) -> Option<&'a [u8]> {
        let len = self.size()?;
        self.take(len)
    }

    /// Reads the number of elements of a pack.
    pub fn count(&mut self) -> Option<u32> {
        u32::try_from(self.int32()?).ok()
    }

    /// Reads the number of elements of a pack that must have one.
    pub fn single(&mut self) -> Option<()> {
        (self.count()? == 1).then_some(())
    }

    /// Reads the length of an array, and the header of the pack of its elements.
    pub fn array(&mut self) -> Option<u32> {
        self.single()?;
        let len = u32::try_from(self.size()?).ok()?;
        (len == 0 || self.count()? == len).then_some(len)
    }
}
