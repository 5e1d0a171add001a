//! Options of the boards that serve the ranks of hosts.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hydrant_board::manage::Secret;
use hydrant_reactor::file::{self, TEXT_MAX, Taken};
use hydrant_run::plan::{BoardOf, Boards};

use super::argument::ParsedOption;
use super::conflict::{conflict, not_alone};
use super::error::UsageError;
use super::offload::target;
use crate::value;

/// Options of the boards that serve the ranks of hosts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job options: hosts")]
pub(super) struct BoardArgs {
    /// Have a board serve the ranks of each host: dpu-%h stands for dpu-a on host a
    ///
    /// TARGET is the management port of 'hydrant serve --manage' on another machine, such as a DPU of the host. %h stands for
    /// the host and %% for a percent sign. Default port: 4100. Each host starts its ranks and connects to its board. The
    /// ranks connect to the board. The job ends when a board is lost or does not answer for --heartbeat seconds, unless
    /// --spare is given.
    #[arg(long, value_name = "TARGET", value_parser = pattern)]
    offload: Option<String>,

    /// Boards of hosts from a file, with a host and the target of its board in each line
    ///
    /// A line with a host and - is a host without a board, which serves its ranks itself. So do hosts that the file does not
    /// name, unless --offload is given. Lines of hosts that the run does not have are ignored. A third word, IP:PORT, is the
    /// address at which other boards reach the board, if it is not the one of its host: behind NAT or port forwarding. # starts
    /// a comment.
    #[arg(long, value_name = "FILE", value_parser = board_file())]
    offload_file: Option<BoardFile>,

    /// File with the secret of the boards of --offload and --offload-file
    ///
    /// As --secret-file of 'hydrant offload'. The hosts get it over their encrypted links.
    #[arg(long, value_name = "FILE", value_parser = value::secret_file())]
    offload_secret: Option<Secret>,
}

/// Boards by host.
type BoardFile = std::sync::Arc<Vec<BoardOf>>;

/// Options that do not go with boards, by their identifiers in clap, with the reason and whether they go with boards that have
/// spares.
const WITHOUT_BOARDS: [(&str, &str, bool); 4] = [
    ("elastic", "hosts that join later have no boards", false),
    ("mpi_psets", "without --spare, ranks have no connection to their own machine", true),
    ("profile", "boards keep no times", false),
    ("sandbox", "the PMI servers run on the boards", false),
];

/// Converts the options into a plan.
pub(super) fn boards(args: BoardArgs, options: &[ParsedOption]) -> Result<Boards, UsageError> {
    let is_spared = options.iter().any(|option| option.id == "spare");
    for (other, why, _) in WITHOUT_BOARDS.into_iter().filter(|&(.., with_spares)| !(is_spared && with_spares))
    {
        conflict(options, "offload", other, why)?;
        conflict(options, "offload_file", other, why)?;
    }
    not_alone(options, "offload_secret", &["offload", "offload_file"], "--offload or --offload-file")?;
    let hosts = args.offload_file.map(|file| file.to_vec()).unwrap_or_default();
    Ok(Boards { pattern: args.offload, hosts, secret: args.offload_secret })
}

/// `--offload`: a target with `%h` for the host.
fn pattern(text: &str) -> Result<String, String> {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('%') {
        rest = behind.strip_prefix(['h', '%']).ok_or("only %h and %% may follow a percent sign")?;
    }
    target(&Boards::fill(text, "host")).map(|_| text.to_owned())
}

/// Parser of `--offload-file`.
fn board_file() -> impl TypedValueParser<Value = BoardFile> {
    OsStringValueParser::new().try_map(|path| read(Path::new(&path)))
}

fn read(path: &Path) -> Result<BoardFile, String> {
    let name = path.display();
    let text = file::read(path, Taken::Streams, TEXT_MAX);
    let text = text.map_err(|why| format!("cannot read {name}: {why}"))?;
    let text = std::str::from_utf8(&text).map_err(|_| format!("{name} is not UTF-8"))?;
    parse(text).map(BoardFile::new)
}

fn parse(text: &str) -> Result<Vec<BoardOf>, String> {
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    let mut boards: Vec<BoardOf> = Vec::new();
    for (number, line) in lines {
        let board = parse_line(line).map_err(|why| format!("line {number}: {why}"))?;
        if boards.iter().any(|other| other.host == board.host) {
            return Err(format!("line {number}: there is a line for host {} already", board.host));
        }
        boards.push(board);
    }
    Ok(boards)
}

fn parse_line(line: &str) -> Result<BoardOf, String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(host), Some("-"), None, None) => {
            Ok(BoardOf { host: host.to_owned(), target: None, link_addr: None })
        }
        (Some(_), Some("-"), Some(_), None) => {
            Err("a host without a board has no address for other boards".to_owned())
        }
        (Some(host), Some(board), addr, None) => Ok(BoardOf {
            host: host.to_owned(),
            target: Some(target(board)?),
            link_addr: addr.map(link_addr).transpose()?,
        }),
        _ => Err("expected a host and its board, with an address for other boards or none, or a host and -"
            .to_owned()),
    }
}

/// The address at which other boards reach one.
fn link_addr(text: &str) -> Result<SocketAddr, String> {
    // Boards look up no names.
    let addr = text.parse().ok().filter(|addr: &SocketAddr| addr.port() > 0 && !addr.ip().is_unspecified());
    let expected =
        "is no address for other boards: expected IP:PORT, such as 192.0.2.7:4100 or [2001:db8::7]:4100";
    addr.ok_or_else(|| format!("{text} {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_the_host_in_it() {
        assert!(
            ["dpu-%h", "%h:4100", "board", "a%%b", "[fd00::1]:4100"].map(pattern).iter().all(Result::is_ok)
        );
        assert_eq!(Boards::fill("dpu-%h.x:%%", "n1"), "dpu-n1.x:%");
        assert!(pattern("dpu-%x").unwrap_err().contains("%h"));
        assert!(pattern("dpu-%").unwrap_err().contains("%h"));
        assert!(pattern("dpu-%h:y").unwrap_err().contains("board:4100"));
    }

    #[test]
    fn a_host_has_one_line() {
        let text = "# boards\nn1 a\n\nn2 -  # none\n";
        assert_eq!(parse(text).map(|boards| boards.len()), Ok(2));
        let twice = parse(&format!("{text}n1 b\n")).unwrap_err();
        assert_eq!(twice, "line 5: there is a line for host n1 already");
    }

    #[test]
    fn a_line_has_a_host_and_its_board() {
        let board = |target: Option<&str>| {
            let target = target.map(str::to_owned);
            BoardOf { host: "n1".to_owned(), target, link_addr: None }
        };
        assert_eq!(parse_line("n1 dpu-n1:4200"), Ok(board(Some("dpu-n1:4200"))));
        assert_eq!(parse_line("n1\t-"), Ok(board(None)));
        assert!(parse_line("n1").is_err() && parse_line("n1 a:b").is_err());
        let no_board = parse_line("n1 - 192.0.2.7:4100").unwrap_err();
        assert!(no_board.contains("a host without a board"), "{no_board}");
        let linked = BoardOf { link_addr: Some(([192, 0, 2, 7], 4100).into()), ..board(Some("a")) };
        assert_eq!(parse_line("n1 a 192.0.2.7:4100"), Ok(linked));
        for wrong in ["b", "192.0.2.7", "192.0.2.7:0", "0.0.0.0:4100", "192.0.2.7:x"] {
            assert!(parse_line(&format!("n1 a {wrong}")).unwrap_err().contains("192.0.2.7:4100"), "{wrong}");
        }
        assert!(parse_line("n1 a 192.0.2.7:4100 b").is_err());
    }
}
