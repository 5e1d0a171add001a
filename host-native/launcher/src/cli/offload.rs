//! `hydrant offload`: the options of `run`, but those that a board has no part in, and where the board is.

use std::net::Ipv6Addr;

use clap::{Args, Command};

use super::args::{self, FirstArgs};
use super::error::UsageError;
use super::help;
use super::words::Given;
use crate::plan::Offload;

/// Options that say where the board is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the board, before the job's first program")]
pub(super) struct OffloadArgs {
    /// The management port of the board that serves the job
    ///
    /// Without :PORT this is 4100. What listens there is a board with hydrant's firmware, or 'hydrant serve --manage' on a
    /// DPU or anywhere else.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = target)]
    target: Option<String>,

    /// Where ranks connect, instead of the port that the board names: ports and ranges of them, as 4000-4007,4100
    ///
    /// Rank 0 connects to the first of them, rank 1 to the next, and so on, starting over behind the last. For boards behind
    /// a forwarding of ports, such as QEMU's, which takes one connection at a time on each.
    #[arg(long, value_name = "PORT,...", value_parser = ports, value_delimiter = ',')]
    pmi_ports: Vec<(u16, u16)>,

    /// At the end, say on standard error what the board counted
    #[arg(long)]
    summary: bool,
}

/// The names of these options in clap.
const OWN: [&str; 3] = ["target", "pmi_ports", "summary"];

const ONE_MACHINE: &str = "all ranks run on this machine, and the board serves them";

/// Options of `run` that this command has not, and why.
const NOT_HERE: [(&str, &str); 19] = [
    ("pmi_port", "ranks connect to the board, at the port that it names or --pmi-ports does"),
    ("mpi_psets", "libhydrant_mpi.so asks a server on its own machine, and this one is a board"),
    ("sandbox", "the core that serves the ranks is the board's"),
    ("universe", "published names are kept by the board"),
    ("limit", "a board's tables are as large as it was built or started with"),
    ("hosts", ONE_MACHINE),
    ("hostfile", ONE_MACHINE),
    ("ppn", ONE_MACHINE),
    ("rr", ONE_MACHINE),
    ("map_by", ONE_MACHINE),
    ("rank_by", ONE_MACHINE),
    ("bootstrap", ONE_MACHINE),
    ("bootstrap_exec", ONE_MACHINE),
    ("bootstrap_timeout", ONE_MACHINE),
    ("remote_hydrant", ONE_MACHINE),
    ("iface", ONE_MACHINE),
    ("radix", ONE_MACHINE),
    ("heartbeat", ONE_MACHINE),
    ("dry_run", ONE_MACHINE),
];

/// `--target`: a name or an address, whose port, where there is one, stands behind a colon.
fn target(text: &str) -> Result<String, String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]"));
    }
    let (host, port) = match text.split_once(']') {
        Some((ip, rest)) => (ip.strip_prefix('[').filter(|ip| ip.parse::<Ipv6Addr>().is_ok()), rest),
        None => text.split_once(':').map_or((Some(text), ""), |(host, _)| (Some(host), &text[host.len()..])),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().is_ok_and(|port: u16| port > 0),
        None => port.is_empty(),
    };
    match host {
        Some(host) if !host.is_empty() && port => Ok(text.to_owned()),
        _ => Err("give a name or an address, and behind a colon a port from 1 to 65535, as in 192.0.2.7, board:4100 or \
                  [2001:db8::7]:4100"
            .to_owned()),
    }
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("give ports as 4000-4015, or one by one as 4000,4007".to_owned()),
    }
}

/// Whether an option of that name is this command's alone.
pub(super) fn is_own(given: &Given) -> bool {
    OWN.contains(&given.id.as_str())
}

/// The plan's part of the options, which `args` were read from.
pub(super) fn plan(args: OffloadArgs, given: &[Given]) -> Result<Offload, UsageError> {
    for (id, why) in NOT_HERE {
        if let Some(given) = given.iter().find(|given| given.id == id) {
            let (at, option) = (given.at.clone(), given.spelled.clone());
            return Err(UsageError::NotHere { at, option, why });
        }
    }
    let target = args.target.ok_or(UsageError::NoTarget)?;
    let ports = args.pmi_ports.into_iter().flat_map(|(first, last)| first..=last).collect();
    Ok(Offload { target, ports, summary: args.summary })
}

/// The command.
pub(super) fn command() -> Command {
    let mut command = OffloadArgs::augment_args(FirstArgs::augment_args(Command::new("offload")));
    for (id, _) in NOT_HERE {
        command = command.mut_arg(id, |arg| arg.hide(true));
    }
    args::job(command, "hydrant offload")
        .about("Start a job here and have a board serve it")
        .long_about(help::OFFLOAD_ABOUT)
        .override_usage(
            "hydrant offload --target HOST[:PORT] [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...",
        )
        .after_long_help(help::OFFLOAD_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_hosts_that_may_have_a_port() {
        for right in ["x", "192.0.2.7", "board.example:1", "192.0.2.7:65535", "[::1]", "[2001:db8::7]:4100"] {
            assert_eq!(target(right).as_deref(), Ok(right));
        }
        assert_eq!(target("::1").as_deref(), Ok("[::1]"));
        let wrong = [
            "", ":", ":4100", "x:", "x:y", "x:0", "x:65536", "x:1:2", "[::1", "[x]:1", "[]", "[::1]1",
            "::1]:1",
        ];
        for wrong in wrong {
            assert!(target(wrong).unwrap_err().contains("board:4100"), "{wrong}");
        }
    }

    #[test]
    fn ports_are_a_range() {
        assert_eq!((ports("4000"), ports("4000-4015")), (Ok((4000, 4000)), Ok((4000, 4015))));
        for wrong in ["", "0", "5-4", "x", "1-70000"] {
            assert!(ports(wrong).unwrap_err().contains("4000-4015"), "{wrong}");
        }
    }
}
