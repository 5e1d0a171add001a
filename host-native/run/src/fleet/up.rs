//! Start of a fleet.

use std::env::{args_os, current_exe};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::process::setsid;

use crate::engine::run;
use crate::error::RunError;
use crate::plan::{FleetOptions, Plan};

/// Option of the command that goes on as the fleet when `hydrant up` has returned.
const DETACHED: &str = "--detached";

/// Starts a fleet. In the foreground this returns its exit code when it has ended. Otherwise a process of its own goes on, and this
/// returns 0 when the fleet is ready.
///
/// # Errors
/// The fleet cannot be started.
pub fn up(plan: &mut Plan) -> Result<u8, RunError> {
    let is = |flag: fn(&FleetOptions) -> bool| plan.options.fleet.as_ref().is_some_and(flag);
    let is_detached = is(|fleet| fleet.detached);
    if !is_detached && !is(|fleet| fleet.foreground) {
        return start_detached();
    }
    if is_detached {
        // It is no leader of a group, so it can leave its session.
        setsid().map_err(RunError::system("cannot leave the session"))?;
    }
    run(plan)
}

/// Starts the process that goes on, and waits until the fleet is ready.
fn start_detached() -> Result<u8, RunError> {
    let failed = RunError::system("cannot start the process of the fleet");
    let mut command = Command::new(current_exe().map_err(&failed)?);
    command.args(args_os().skip(1)).arg(DETACHED).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(&failed)?;
    let mut line = Vec::new();
    let mut byte = [0];
    let mut out = child.stdout.take().expect("it has been piped");
    while !line.ends_with(b"\n") && matches!(out.read(&mut byte), Ok(1)) {
        line.push(byte[0]);
    }
    if line.is_empty() {
        // It has said why.
        let status = child.wait().map_err(&failed)?;
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).max(1));
    }
    // The fleet is there, whether anybody reads that.
    let _ = std::io::stdout().write_all(&line);
    Ok(0)
}
