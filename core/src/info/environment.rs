//! Info keys that describe how the process was started (MPI 5.0, 10 and 11.2: `MPI_Info_create_env`, `MPI_INFO_ENV`).

use super::{INFO_VALUE_MAX, Info, InfoError};

/// Description of a process's start. Unknown fields are empty, and their keys are not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment<'a> {
    /// `command`: name of the program.
    pub command: &'a [u8],
    /// `argv`: its arguments, which the value separates by blanks.
    pub args: &'a [&'a [u8]],
    /// `maxprocs`: maximum number of processes to start. 0 if unknown.
    pub maxprocs: u32,
    /// `host`: name of the host.
    pub host: &'a [u8],
    /// `arch`: architecture of the host.
    pub arch: &'a [u8],
    /// `wdir`: the working directory.
    pub wdir: &'a [u8],
}

impl Environment<'_> {
    /// Sets the keys. A value that exceeds the maximum length is omitted, because a truncated one would be wrong.
    ///
    /// # Errors
    /// [`InfoError::Full`]. The keys before the one that does not fit are set.
    pub fn set<S: AsRef<[u8]> + AsMut<[u8]>>(&self, info: &mut Info<S>) -> Result<(), InfoError> {
        let mut put = |key: &[u8], value: &[u8]| match value {
            [] => Ok(()),
            _ if value.len() > INFO_VALUE_MAX => Ok(()),
            _ => info.set(key, value),
        };
        put(b"command", self.command)?;
        let mut room = [0; INFO_VALUE_MAX];
        if let Some(len) = join(self.args, &mut room) {
            put(b"argv", &room[..len])?;
        }
        put(b"maxprocs", decimal(self.maxprocs, &mut [0; 10]))?;
        put(b"host", self.host)?;
        put(b"arch", self.arch)?;
        put(b"wdir", self.wdir)
    }
}

/// Writes the arguments separated by blanks. Returns the length, or `None` if they do not fit.
fn join(args: &[&[u8]], room: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            *room.get_mut(len)? = b' ';
            len += 1;
        }
        room.get_mut(len..len + arg.len())?.copy_from_slice(arg);
        len += arg.len();
    }
    Some(len)
}

/// Returns the decimal digits of a number. 0 has none.
fn decimal(mut number: u32, buf: &mut [u8; 10]) -> &[u8] {
    let mut start = buf.len();
    while number > 0 {
        start -= 1;
        buf[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    &buf[start..]
}
