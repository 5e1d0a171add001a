//! Fixed layouts of inputs and outputs: what [`hydrant_handle`](crate::exports::HANDLE) and
//! [`hydrant_poll`](crate::exports::POLL) read and write. Numbers are little-endian, without padding.

/// Number of inputs of one call, at most.
pub const INPUTS_MAX: u32 = 256;
/// In the place of a connection: the bytes are a record.
pub const RECORD: u32 = u32::MAX;
/// Bit of the length of an input's bytes: the host's buffer for this connection has no room for more bytes.
pub const FULL: u32 = 1 << 31;
/// Bit of the flags of a return: there may be outputs behind those of the return.
pub const MORE: u32 = 1;
/// Bit of the flags of a return: `poll_at` is a deadline.
pub const DEADLINE: u32 = 2;

/// Head of an input or of an output. Its bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The connection that the bytes are from or for. `RECORD` if they are the record of an `Input` or of an `Output`.
    pub conn: u32,
    /// Number of bytes. An input's has the bit `FULL` if the host has no room for more bytes of the connection.
    pub len: u32,
}

/// Head of a return. `results` times `InputResult` follow, then the record of a `CallError` or `outputs` times `Part`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnHead {
    /// Number of inputs that the server has accepted.
    pub results: u32,
    /// Number of outputs.
    pub outputs: u32,
    /// Bits `MORE` and `DEADLINE`.
    pub flags: u32,
    /// Length of the record of a `CallError`: why the input behind the accepted ones was refused. 0 without an error.
    pub error: u32,
    /// When the host has to send `Timeout` if no other input comes first. Only with the bit `DEADLINE`.
    pub poll_at: u64,
}

/// What the server has consumed of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputResult {
    /// Number of bytes consumed. 0 for a record.
    pub bytes: u32,
    /// 1 if a complete message remains because too many replies are pending, and else 0.
    pub again: u32,
}

macro_rules! layout {
    ($name:ident { $($field:ident: $type:ident),* }) => {
        impl $name {
            /// Length in bytes.
            pub const LEN: usize = 0 $(+ size_of::<$type>())*;
            /// Names and types of the fields, in their order.
            pub const FIELDS: &[(&str, &str)] = &[$((stringify!($field), stringify!($type))),*];

            /// Reads it from the front of `bytes`. Returns it and the rest, or `None` if there are too few.
            #[inline]
            pub fn read(bytes: &[u8]) -> Option<($name, &[u8])> {
                let (head, rest) = bytes.split_first_chunk::<{ $name::LEN }>()?;
                let head = head.as_slice();
                $(let (&$field, head) = head.split_first_chunk()?;)*
                let _ = head;
                Some(($name { $($field: $type::from_le_bytes($field)),* }, rest))
            }

            /// Writes it to the front of `buf`. Returns the rest, or `None` if there is too little room.
            #[inline]
            pub fn write(self, buf: &mut [u8]) -> Option<&mut [u8]> {
                let (head, rest) = buf.split_first_chunk_mut::<{ $name::LEN }>()?;
                let head = head.as_mut_slice();
                $(let ($field, head) = head.split_first_chunk_mut()?;
                *$field = self.$field.to_le_bytes();)*
                let _ = head;
                Some(rest)
            }
        }
    };
}

layout!(Part { conn: u32, len: u32 });
layout!(TurnHead { results: u32, outputs: u32, flags: u32, error: u32, poll_at: u64 });
layout!(InputResult { bytes: u32, again: u32 });
