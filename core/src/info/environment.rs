//! Info keys that describe how the process was started (MPI 5.0, 10 and 11.2: `MPI_Info_create_env`, `MPI_INFO_ENV`).

use super::{INFO_VALUE_MAX, Info, InfoError};

/// What a process knows of its start. What it does not know is empty, and its key is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment<'a> {
    /// `command`: the program's name.
    pub command: &'a [u8],
    /// `argv`: its arguments, which stand there with blanks between them.
    pub args: &'a [&'a [u8]],
    /// `maxprocs`: how many processes were to be started; 0 where that is not known.
    pub maxprocs: u32,
    /// `host`
    pub host: &'a [u8],
    /// `arch`: the kind of machine.
    pub arch: &'a [u8],
    /// `wdir`: the working directory.
    pub wdir: &'a [u8],
}

impl Environment<'_> {
    /// Sets the keys. A value that is longer than values may be is left out, because half of it would be wrong.
    ///
    /// # Errors
    /// [`InfoError::Full`]; the keys before the one that found no room are set.
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

/// Writes the arguments with blanks between them; how long that is, where it fits.
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

/// The digits of a number, none of 0.
fn decimal(mut number: u32, buf: &mut [u8; 10]) -> &[u8] {
    let mut start = buf.len();
    while number > 0 {
        start -= 1;
        buf[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    &buf[start..]
}
