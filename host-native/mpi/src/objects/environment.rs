//! Keys that describe how the process was started (MPI 5.0, 10 and 11.2: `MPI_Info_create_env`, `MPI_INFO_ENV`).

use std::env;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::Error;
use crate::info::{INFO_VALUE_MAX, Info};
use crate::psets;

/// Returns the keys of `MPI_INFO_ENV`: how this process was started, with these arguments. The first one is its name. A
/// value that is too long is omitted, because a truncated one would be wrong.
pub(crate) fn environment(args: &[&[u8]]) -> Result<Info, Error> {
    // Without hydrant's process sets the programs of the job are unknown.
    let of_job = || env::var("PMI_SIZE").ok().and_then(|size| size.parse().ok());
    let maxprocs = psets::program_size().or_else(of_job).unwrap_or(1);
    let wdir = env::current_dir().unwrap_or_default();
    let system = rustix::system::uname();
    let (command, args) = args.split_first().map_or((&b""[..], &[][..]), |(command, args)| (*command, args));
    let mut info = Info::default();
    for (key, value) in [
        (&b"command"[..], command),
        (b"argv", &args.join(&b' ')),
        (b"maxprocs", maxprocs.to_string().as_bytes()),
        (b"host", system.nodename().to_bytes()),
        (b"arch", env::consts::ARCH.as_bytes()),
        (b"wdir", wdir.as_os_str().as_bytes()),
    ] {
        if (1..=INFO_VALUE_MAX).contains(&value.len()) {
            info.set(key, value)?;
        }
    }
    Ok(info)
}

/// Returns the same for the arguments of this process.
pub(crate) fn initial_environment() -> Result<Info, Error> {
    let args: Vec<Vec<u8>> = env::args_os().map(OsStringExt::into_vec).collect();
    environment(&args.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_too_long_are_left_out() {
        let long = [b'x'; INFO_VALUE_MAX];
        let info = environment(&[b"./a.out", b"-n", b"12"]).unwrap();
        assert_eq!(
            (info.get(b"command"), info.get(b"argv")),
            (Ok(Some(&b"./a.out"[..])), Ok(Some(&b"-n 12"[..])))
        );
        let info = environment(&[b"./a.out", &long[..1000], &long[..23]]).unwrap();
        assert_eq!(info.get(b"argv").map(|argv| argv.map(<[u8]>::len)), Ok(Some(INFO_VALUE_MAX)));
        let info = environment(&[b"./a.out", &long[..1000], &long[..24]]).unwrap();
        assert_eq!(info.get(b"argv"), Ok(None));
        assert_eq!(environment(&[]).unwrap().get(b"command"), Ok(None));
    }
}
