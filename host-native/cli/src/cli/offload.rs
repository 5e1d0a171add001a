//! Options of `hydrant offload`: the board, and the options of `run` that do not apply.

use std::net::Ipv6Addr;

use clap::Args;
use hydrant_board::manage::Secret;
use hydrant_run::plan::Offload;

use super::argument::ParsedOption;
use super::error::UsageError;
use crate::value;

/// Options of the board.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job options: board")]
pub(super) struct OffloadArgs {
    /// Management port of the board
    ///
    /// Default port: 4100. The board runs hydrant's firmware, or 'hydrant serve --manage' on a DPU or any other machine.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = target)]
    target: Option<String>,

    /// File with the secret of the board
    ///
    /// The secret encrypts and authenticates the connection to 'hydrant serve --manage --secret-file', or to firmware that was
    /// built with it. It has at least 16 bytes, and other users must not be able to read the file.
    #[arg(long, value_name = "FILE", value_parser = value::secret_file())]
    secret_file: Option<Secret>,

    /// Ports for the ranks instead of the port that the board reports: 4000-4007,4100
    ///
    /// Rank 0 connects to the first port, rank 1 to the second, and so on, starting again after the last. Use it for boards
    /// behind port forwarding that accepts one connection at a time on each port, such as QEMU's. The ports are those of the
    /// first job: ranks of spawned jobs connect to the port that the board reports.
    #[arg(long, value_name = "PORT,...", value_parser = ports, value_delimiter = ',')]
    pmi_ports: Vec<(u16, u16)>,

    /// Print the board's counters on standard error at the end
    #[arg(long)]
    summary: bool,
}

/// Identifiers of these options in clap.
const BOARD_OPTIONS: [&str; 4] = ["target", "secret_file", "pmi_ports", "summary"];

const LOCAL_RANKS: &str = "all ranks run on this machine";
const ONE_BOARD: &str = "--target and --secret-file name the board";

/// Options of `run` that do not apply, by their identifiers in clap, with the reason.
pub(super) const NOT_OFFLOADABLE: [(&str, &str); 33] = [
    ("pmi_port", "ranks connect to a port of the board; see --pmi-ports"),
    ("mpi_psets", "libhydrant_mpi.so needs a server on its own machine"),
    ("sandbox", "the PMI server runs on the board"),
    ("spare", "only plugins and the boards of 'hydrant run --offload' have spares"),
    ("mem_pool", "a board does not know which ranks share a host"),
    ("name_server", "its jobs find the names of their own run only"),
    ("limit", "the capacities of a board are fixed when it is built or started"),
    ("host", LOCAL_RANKS),
    ("hosts", LOCAL_RANKS),
    ("hostfile", LOCAL_RANKS),
    ("ppn", LOCAL_RANKS),
    ("rr", LOCAL_RANKS),
    ("map_by", LOCAL_RANKS),
    ("rankmap", LOCAL_RANKS),
    ("rank_by", LOCAL_RANKS),
    ("bootstrap", LOCAL_RANKS),
    ("elastic", LOCAL_RANKS),
    ("expect", LOCAL_RANKS),
    ("join_secret", LOCAL_RANKS),
    ("join_port", LOCAL_RANKS),
    ("bootstrap_exec", LOCAL_RANKS),
    ("bootstrap_timeout", LOCAL_RANKS),
    ("remote_hydrant", LOCAL_RANKS),
    ("iface", LOCAL_RANKS),
    ("radix", LOCAL_RANKS),
    ("preload_binary", LOCAL_RANKS),
    ("preload_libs", LOCAL_RANKS),
    ("preload_files", LOCAL_RANKS),
    ("dry_run", LOCAL_RANKS),
    ("profile", "boards keep no times"),
    ("offload", ONE_BOARD),
    ("offload_file", ONE_BOARD),
    ("offload_secret", ONE_BOARD),
];

/// `--target`: a name or an address, optionally with a port.
pub(super) fn target(text: &str) -> Result<String, String> {
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
        _ => Err(
            "expected a name or an address, with an optional port from 1 to 65535: 192.0.2.7, board:4100 or \
                  [2001:db8::7]:4100"
                .to_owned(),
        ),
    }
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("expected ports, as 4000-4015 or 4000,4007".to_owned()),
    }
}

/// Whether the option of `run` does not apply.
pub(super) fn is_not_offloadable(id: &str) -> bool {
    NOT_OFFLOADABLE.iter().any(|(other, _)| *other == id)
}

/// Whether the option belongs to `offload` alone.
pub(super) fn is_board_option(option: &ParsedOption) -> bool {
    BOARD_OPTIONS.contains(&option.id.as_str())
}

/// Converts the options of the board into a plan. `others` are the options of `run`, of all programs.
pub(super) fn plan<'a>(
    args: OffloadArgs,
    others: impl Iterator<Item = &'a ParsedOption> + Clone,
) -> Result<Offload, UsageError> {
    for (id, why) in NOT_OFFLOADABLE {
        if let Some(option) = others.clone().find(|option| option.id == id) {
            let (location, option) = (option.location.clone(), option.spelling.clone());
            return Err(UsageError::NotOffloadable { location, option, why });
        }
    }
    let target = args.target.ok_or(UsageError::MissingTarget)?;
    let ports = args.pmi_ports.into_iter().flat_map(|(first, last)| first..=last).collect();
    Ok(Offload { target, secret: args.secret_file, ports, summary: args.summary })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_hosts_with_an_optional_port() {
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
