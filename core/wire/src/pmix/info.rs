//! INFOs of a request: keys with flags and a value.

use super::reader::{Proc, Reader};
use super::{Integers, WILDCARD, keys, kind};

/// Key with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info<'a> {
    /// The key, without NUL.
    pub key: &'a [u8],
    /// Type of the value.
    pub kind: u16,
    /// Encoded value.
    pub value: &'a [u8],
    pub(super) integers: Integers,
}

/// Array of INFOs that has been validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Infos<'a> {
    len: u32,
    elements: &'a [u8],
    integers: Integers,
}

impl<'a> Info<'a> {
    fn reader(&self) -> Reader<'a> {
        Reader::new(self.integers, self.value)
    }

    /// Returns the value of a BOOL. A value without a type counts as true.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind {
            0 => Some(true),
            kind::BOOL => self.reader().byte().map(|byte| byte != 0),
            _ => None,
        }
    }

    /// Returns the value of an integer that is not negative.
    pub fn as_u32(&self) -> Option<u32> {
        let mut reader = self.reader();
        match self.kind {
            kind::INT => reader.natural(),
            kind::INT32 => u32::try_from(reader.int32()?).ok(),
            kind::UINT16 => reader.unsigned(2).and_then(|number| u32::try_from(number).ok()),
            kind::UINT32 | kind::PROC_RANK => reader.uint32(),
            kind::SIZE | kind::UINT64 => u32::try_from(reader.size()?).ok(),
            _ => None,
        }
    }

    /// Returns the value of a one-byte type.
    pub fn as_byte(&self) -> Option<u8> {
        matches!(self.kind, kind::PERSIST | kind::DATA_RANGE).then(|| self.reader().byte()).flatten()
    }

    /// Returns the value of a STRING.
    pub fn as_string(&self) -> Option<&'a [u8]> {
        if self.kind == kind::STRING { self.reader().string()? } else { None }
    }

    /// Returns the value of a PROC.
    pub fn as_proc(&self) -> Option<Proc<'a>> {
        if self.kind == kind::PROC { self.reader().proc() } else { None }
    }

    /// Returns whether the value, a PROC or an array of PROCs, contains a process.
    pub fn contains(&self, namespace: &[u8], rank: u32) -> bool {
        let is_it =
            |proc: Proc<'_>| proc.namespace == namespace && (proc.rank == rank || proc.rank == WILDCARD);
        let listed = self.array(kind::PROC, Reader::proc);
        self.as_proc().is_some_and(is_it) || listed.is_some_and(|mut procs| procs.any(is_it))
    }

    /// Returns the elements of a DATA_ARRAY, if they are of this type. `read` reads one.
    pub fn array<T, R: Fn(&mut Reader<'a>) -> Option<T>>(
        &self,
        of: u16,
        read: R,
    ) -> Option<impl Iterator<Item = T> + use<'a, T, R>> {
        let mut reader = self.reader();
        let is_it = self.kind == kind::DATA_ARRAY && reader.data_type() == Some(of);
        let count = is_it.then(|| reader.size()).flatten()?;
        Some((0..count).map_while(move |_| read(&mut reader)))
    }

    /// Returns the value of an array of INFOs.
    pub fn as_infos(&self) -> Option<Infos<'a>> {
        let mut reader = self.reader();
        let is_array = self.kind == kind::DATA_ARRAY && reader.data_type()? == kind::INFO;
        if is_array { reader.inner_infos() } else { None }
    }

    /// Returns the value of a BYTE_OBJECT.
    pub fn as_blob(&self) -> Option<&'a [u8]> {
        if self.kind == kind::BYTE_OBJECT { self.reader().blob() } else { None }
    }
}

impl<'a> Infos<'a> {
    /// None.
    pub const EMPTY: Infos<'static> = Infos { len: 0, elements: &[], integers: Integers::Flexible };

    /// Returns the number of INFOs.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the encoding of their integers.
    pub const fn integers(&self) -> Integers {
        self.integers
    }

    /// Returns the encoded INFOs.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.elements
    }

    /// Returns the INFOs.
    pub fn iter(&self) -> impl Iterator<Item = Info<'a>> + Clone + use<'a> {
        let mut reader = Reader::new(self.integers, self.elements);
        (0..self.len).map_while(move |_| reader.info())
    }

    /// Returns the INFO with that key.
    pub fn find(&self, key: &[u8]) -> Option<Info<'a>> {
        self.iter().find(|info| info.key == key)
    }

    /// Returns the time-out (`pmix.timeout`, in seconds) in milliseconds. 0 is none.
    pub fn timeout(&self) -> Option<u64> {
        let seconds = self.find(keys::TIMEOUT)?.as_u32().filter(|&seconds| seconds > 0)?;
        Some(u64::from(seconds) * 1000)
    }

    /// Returns whether the INFO with that key is true.
    pub fn is_set(&self, key: &[u8]) -> bool {
        self.find(key).and_then(|info| info.as_bool()) == Some(true)
    }
}

impl<'a> Reader<'a> {
    /// Reads an INFO.
    pub fn info(&mut self) -> Option<Info<'a>> {
        let key = self.key()?;
        self.uint32()?;
        let kind = self.data_type()?;
        let value = self.span(|reader| reader.skip(kind))?;
        Some(Info { key, kind, value, integers: self.integers() })
    }

    /// Reads a pack with one KVAL.
    pub fn key_value(&mut self) -> Option<Info<'a>> {
        self.single()?;
        let key = self.key()?;
        let kind = self.data_type()?;
        let value = self.span(|reader| reader.skip(kind))?;
        Some(Info { key, kind, value, integers: self.integers() })
    }

    /// Reads job data, the reply to [`Command::JobInfo`](super::Command::JobInfo): its pairs up to one that cannot be read.
    pub fn job_data(mut self) -> Option<impl Iterator<Item = Info<'a>>> {
        self.single()?;
        self.namespace()?;
        Some(core::iter::from_fn(move || if self.is_at_end() { None } else { self.key_value() }))
    }

    /// Reads an array of INFOs.
    pub fn infos(&mut self) -> Option<Infos<'a>> {
        let len = self.array()?;
        self.elements(len)
    }

    /// Reads this number of INFOs.
    pub fn infos_of(&mut self, len: u32) -> Option<Infos<'a>> {
        self.elements(len)
    }

    /// Reads an array of INFOs within an element.
    pub(super) fn inner_infos(&mut self) -> Option<Infos<'a>> {
        let len = u32::try_from(self.size()?).ok()?;
        self.elements(len)
    }

    fn elements(&mut self, len: u32) -> Option<Infos<'a>> {
        let elements = self.span(|reader| (0..len).try_for_each(|_| reader.info().map(drop)))?;
        Some(Infos { len, elements, integers: self.integers() })
    }
}
