//! Steps of a rank's program, and the requests that it sends.

use crate::rank::{self, Meeting, Script};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request of the handshake, the key-value space or a collective.
    Pmi(rank::Step),
    /// Writes so many bytes. The rank waits while the pipe is full.
    Write {
        /// To standard error instead of standard output.
        stderr: bool,
        /// Number of bytes.
        len: u32,
    },
    /// Waits so many nanoseconds.
    Sleep(u64),
    /// Publishes a name.
    Publish {
        /// Number of the name.
        name: u32,
    },
    /// Looks a name up.
    Lookup {
        /// Number of the name.
        name: u32,
    },
    /// Withdraws a name.
    Unpublish {
        /// Number of the name.
        name: u32,
    },
    /// Spawns all ranks of another program.
    Spawn {
        /// Index of the program in the plan.
        program: u32,
    },
    /// Reads so many bytes of standard input, or to its end. The rank waits for them.
    Read {
        /// Number of bytes.
        len: u32,
    },
    /// Closes standard input.
    CloseInput,
    /// The process ends.
    End(Ending),
}

/// End of a rank's process by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exits with this code.
    Exit(u8),
    /// It dies by this signal.
    Signal(u8),
    /// It aborts its job with this code.
    Abort(u8),
    /// It aborts only itself with this code (PMI-2).
    SelfAbort(u8),
    /// It closes its PMI connection and runs on.
    CutOff,
}

/// Returns the name of a program's command.
pub(super) fn command(program: u32) -> String {
    format!("p{program}")
}

/// Returns the program of a command.
pub(super) fn program_of(command: &str) -> Option<u32> {
    command.strip_prefix('p')?.parse().ok()
}

/// Returns the request of a step with the number of its replies. None for a step without a request.
pub(super) fn request(
    step: &Step,
    script: &Script,
    rank: u32,
    meetings: &[Meeting],
    sizes: &[u32],
) -> Option<(Vec<u8>, u32)> {
    let text = match (step, script.protocol) {
        (Step::Pmi(step), _) => return Some((script.message(rank, step, meetings)?, script.replies(step))),
        (Step::Publish { name }, 1) => format!("cmd=publish_name service=name{name} port=port{rank}\n"),
        (Step::Publish { name }, _) => format!("cmd=name-publish;name=name{name};port=port{rank};"),
        (Step::Lookup { name }, 1) => format!("cmd=lookup_name service=name{name}\n"),
        (Step::Lookup { name }, _) => format!("cmd=name-lookup;name=name{name};"),
        (Step::Unpublish { name }, 1) => format!("cmd=unpublish_name service=name{name}\n"),
        (Step::Unpublish { name }, _) => format!("cmd=name-unpublish;name=name{name};"),
        (Step::Spawn { program }, version) => {
            let (command, size) = (command(*program), sizes[*program as usize]);
            match version {
                1 => format!(
                    "mcmd=spawn\nnprocs={size}\nexecname={command}\ntotspawns=1\nspawnssofar=1\nargcnt=0\n\
                     preput_num=0\ninfo_num=0\nendcmd\n"
                ),
                _ => format!(
                    "cmd=spawn;ncmds=1;preputcount=0;subcmd={command};maxprocs={size};argc=0;infokeycount=0;"
                ),
            }
        }
        (Step::End(Ending::Abort(code)), 1) => format!("cmd=abort exitcode={code}\n"),
        (Step::End(Ending::Abort(code)), _) => format!("cmd=abort;isworld=TRUE;msg=enough;exitcode={code};"),
        (Step::End(Ending::SelfAbort(code)), _) => {
            format!("cmd=abort;isworld=FALSE;msg=enough;exitcode={code};")
        }
        (Step::Write { .. } | Step::Sleep(_) | Step::Read { .. } | Step::CloseInput | Step::End(_), _) => {
            return None;
        }
    };
    let replies = u32::from(!matches!(step, Step::End(_)));
    let text = if script.protocol == 1 { text } else { format!("{:6}{text}", text.len()) };
    Some((text.into_bytes(), replies))
}
