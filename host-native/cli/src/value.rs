//! Parsers of option values. Their errors describe the valid values.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::builder::{
    OsStringValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser,
};
use hydrant_board::manage::Secret;
use hydrant_control::ExitCodeOf;
use hydrant_control::protocol::AttributeOf;
use hydrant_core::limits::{
    COMMIT_BYTES_MAX, ESCAPES_ATTR, KEY_MAX, MESSAGE_MAX, PSET_NAME_MAX, PSET_SCHEME, TEXT_ATTR_PREFIX,
    VALUE_MAX,
};
use hydrant_core::server::FenceMode;
use hydrant_core::{Limit, Limits};
use hydrant_placement::Bootstrap;
use hydrant_run::plan::{
    Attribute, JoinSecret, Plugin, Pty, SharedMemory, Spare, StdinTarget, UniverseSize, UriTarget,
};
use hydrant_start::{OWN_VARIABLES, is_in_job_folder};

use crate::quoting;

/// Default address of `--pmi-port`: loopback, any free port.
pub(crate) const PMI_PORT_DEFAULT: &str = "127.0.0.1:0";

/// Assignment of an environment variable: `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: OsString,
    pub(crate) value: OsString,
}

/// Parser of a file with a secret.
pub(crate) fn secret_file() -> impl TypedValueParser<Value = Secret> {
    OsStringValueParser::new().try_map(|path| Secret::read(Path::new(&path)))
}

/// `--secret-file` of `run`: a file with a secret, or a folder with one for each host.
pub(crate) fn join_secret() -> impl TypedValueParser<Value = JoinSecret> {
    OsStringValueParser::new().try_map(|path| {
        let path = PathBuf::from(path);
        match path.is_dir() {
            true => Ok(JoinSecret::Folder(path)),
            false => Secret::read(&path).map(JoinSecret::One),
        }
    })
}

/// Parser of `--pty`.
pub(crate) fn pty() -> impl TypedValueParser<Value = Pty> {
    PossibleValuesParser::new([
        PossibleValue::new("auto").help("Those that go to a terminal"),
        PossibleValue::new("always").help("All of them"),
        PossibleValue::new("never").help("None: all are pipes"),
    ])
    .map(|name| match name.as_str() {
        "always" => Pty::Always,
        "never" => Pty::Never,
        _ => Pty::Auto,
    })
}

/// Parser of `--spare`.
pub(crate) fn spare() -> impl TypedValueParser<Value = Spare> {
    PossibleValuesParser::new([PossibleValue::new("native").help("The built-in server")])
        .map(|_| Spare::Native)
}

/// Parser of `NAME=VALUE`.
pub(crate) fn assignment() -> impl TypedValueParser<Value = Assignment> {
    OsStringValueParser::new().try_map(|word| split_assignment(&word))
}

fn split_assignment(word: &OsStr) -> Result<Assignment, String> {
    let bytes = word.as_bytes();
    let equals = bytes.iter().position(|&byte| byte == b'=').ok_or("expected NAME VALUE or NAME=VALUE")?;
    let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
    if name.is_empty() {
        return Err("the name is empty; expected NAME VALUE or NAME=VALUE".to_owned());
    }
    if let Some(own) = OWN_VARIABLES.iter().find(|own| own.as_bytes() == name) {
        return Err(format!("hydrant sets {own} for each rank"));
    }
    Ok(Assignment { name: OsString::from_vec(name.to_vec()), value: OsString::from_vec(value.to_vec()) })
}

/// `-n`.
pub(crate) fn ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("expected a number of ranks from 1 to {}", i32::MAX)),
        Ok(ranks) => Ok(ranks),
    }
}

/// Parser of a name in a list of environment variables.
pub(crate) fn variable_name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|name| match name.as_bytes() {
        [] => Err("expected names of variables, separated by commas".to_owned()),
        bytes if bytes.contains(&b'=') => {
            Err("expected names without values; to set a variable write -genv NAME VALUE".to_owned())
        }
        _ => Ok(name),
    })
}

/// Parser of a whole number in a range.
pub(crate) fn within(range: RangeInclusive<u32>) -> impl TypedValueParser<Value = u32> {
    StringValueParser::new().try_map(move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    })
}

/// `--usize`.
pub(crate) fn universe_size(text: &str) -> Result<UniverseSize, String> {
    match text {
        "SYSTEM" => Ok(UniverseSize::System),
        "INFINITE" => Ok(UniverseSize::Infinite),
        _ => match text.parse() {
            Ok(0) | Err(_) => {
                Err("expected a number of processes, at least 1, or SYSTEM or INFINITE".to_owned())
            }
            Ok(size) => Ok(UniverseSize::Size(size)),
        },
    }
}

/// Parser of `--sandbox`: a file, or an empty value for the installed plugin.
pub(crate) fn plugin() -> impl TypedValueParser<Value = Plugin> {
    OsStringValueParser::new().map(|text| match text.is_empty() {
        true => Plugin::Installed,
        false => Plugin::File(text.into()),
    })
}

/// Parser of `--preload-files`.
pub(crate) fn preload_file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let parts = Path::new(&text).components();
        let name: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        match is_in_job_folder(&name) {
            true => Ok(name),
            false if name.is_absolute() => {
                Err("expected a path in the working directory: a file of an absolute path has no place in the folder of the run")
            }
            false => Err("expected a path in the working directory, without .."),
        }
    })
}

/// Parser of `--name-server`.
pub(crate) fn socket_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| match text.is_empty() {
        true => Err("expected the path of a socket"),
        false => Ok(PathBuf::from(text)),
    })
}

/// Parser of `--outfile-pattern` and `--errfile-pattern`.
pub(crate) fn pattern() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|text| match has_codes(text.as_bytes(), b"rgIhpa%") {
        _ if text.is_empty() => Err("expected a file name; %r in it stands for the rank"),
        true => Ok(text),
        false => {
            Err("expected r (rank), p (process id), h (host), a (program), g (job), I (task) or % after %")
        }
    })
}

/// `--prepend-pattern`.
pub(crate) fn prefix_pattern(text: &str) -> Result<String, String> {
    match has_codes(text.as_bytes(), b"rgIh%") {
        true => Ok(text.to_owned()),
        false => Err("expected r (rank), g (job), I (task), h (host) or % after %".to_owned()),
    }
}

/// Returns whether each percent sign is followed by one of these letters.
fn has_codes(text: &[u8], codes: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' && !bytes.next().is_some_and(|code| codes.contains(code)) {
            return false;
        }
    }
    true
}

/// Name of a fleet.
pub(crate) fn fleet_name(text: &str) -> Result<String, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match (1..=40).contains(&text.len()) && text.chars().all(is_fit) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err("expected at most 40 letters, digits, dots, dashes and underscores".to_owned()),
    }
}

/// `--stdin`.
pub(crate) fn stdin_target(text: &str) -> Result<StdinTarget, String> {
    match text {
        "all" => Ok(StdinTarget::All),
        "none" => Ok(StdinTarget::None),
        "tools" => Ok(StdinTarget::Tools),
        _ => match text.parse() {
            Ok(rank) => Ok(StdinTarget::Rank(rank)),
            Err(_) => Err("expected all, none, tools or a rank".to_owned()),
        },
    }
}

/// `--memory-alloc-kinds`.
pub(crate) fn memory_alloc_kinds(text: &str) -> Result<String, String> {
    const MOST: usize = 512;
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b';' && byte != b'=';
    match (1..=MOST).contains(&text.len()) && text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("expected kinds of memory, as in system,cuda:device".to_owned()),
    }
}

/// `--mem-pool`: bytes, at least 1.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u64); 4] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];
    let with_unit = |&(letter, unit): &(char, u64)| Some((text.strip_suffix(letter)?, unit));
    let (digits, unit) = UNITS.iter().find_map(with_unit).unwrap_or((text, 1));
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let size = size.filter(|&size| (1..=i64::MAX as u64).contains(&size));
    size.ok_or_else(|| "expected a number of bytes, at least 1, or with K, M, G or T as in 512M".to_owned())
}

/// Attributes that belong to the job itself or that the server computes for each reply. Other options set some of them.
const OWN_ATTRIBUTES: [&str; 10] = [
    "PMI_process_mapping",
    "PMI_mpi_memory_alloc_kinds",
    "PMI_dead_processes",
    "universeSize",
    "hasNameServ",
    ESCAPES_ATTR,
    "memPoolType",
    "memAnonMMAPfd",
    "localRanks",
    "localRanksCount",
];

/// `--job-attr`.
pub(crate) fn job_attribute(text: &str) -> Result<Attribute, String> {
    attribute(AttributeOf::Job, text)
}

/// `--node-attr`.
pub(crate) fn node_attribute(text: &str) -> Result<Attribute, String> {
    attribute(AttributeOf::Nodes, text)
}

fn attribute(of: AttributeOf, text: &str) -> Result<Attribute, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    if name.is_empty() || name.len() > KEY_MAX as usize || !name.bytes().all(fits) {
        return Err(format!(
            "expected a name of 1 to {KEY_MAX} printable ASCII characters without blanks, ';' and '='"
        ));
    }
    if OWN_ATTRIBUTES.contains(&name)
        || ["pmix.", "node:", TEXT_ATTR_PREFIX].iter().any(|prefix| name.starts_with(prefix))
    {
        return Err(format!("hydrant sets the attribute {name}"));
    }
    if value.len() > VALUE_MAX as usize {
        return Err(format!("the value has {} bytes, and PMI allows {VALUE_MAX}", value.len()));
    }
    if value.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("the value has a control character, which PMI-1 does not carry".to_owned());
    }
    Ok(Attribute { of, name: name.to_owned(), value: value.to_owned() })
}

/// Name of a process set, by the rules of the server. A name without a scheme gets the one of the server.
pub(crate) fn pset_name(text: &str) -> Result<String, String> {
    const RESERVED: &str = "mpi://";
    let reserved = text.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED));
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    let uri = if text.contains("://") { text.to_owned() } else { format!("{PSET_SCHEME}{text}") };
    if text.is_empty() || uri.len() > PSET_NAME_MAX || reserved || !text.bytes().all(fits) {
        return Err(format!(
            "expected 1 to {PSET_NAME_MAX} printable ASCII characters with {PSET_SCHEME}, without blanks and ';', not \
             starting with {RESERVED}"
        ));
    }
    Ok(uri)
}

/// `--pmi-port`. Clients find the address in `PMI_PORT`, which has no place for the scope of a link-local address.
pub(crate) fn pmi_address(text: &str) -> Result<SocketAddr, String> {
    match address(text)? {
        SocketAddr::V6(addr) if addr.ip().is_unicast_link_local() => {
            Err("expected an address that is not link-local: clients do not learn its interface".to_owned())
        }
        addr => Ok(addr),
    }
}

/// An address: `IP:PORT`, or `:PORT` and `localhost:PORT` for loopback.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = text.strip_prefix("localhost").unwrap_or(text).strip_prefix(':');
    if let Some(port) = loopback.and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "expected IP:PORT, for example 127.0.0.1:0".to_owned())
}

/// `--fence-warning`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds, for example 30 or 0.5".to_owned())
}

/// `--drain` and `--kill-grace`: seconds, or `unlimited`, which is a hundred years.
pub(crate) fn seconds_or_unlimited(text: &str) -> Result<Duration, String> {
    const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 86_400);
    if text == "unlimited" {
        return Ok(UNLIMITED);
    }
    let seconds = seconds(text).map_err(|why| format!("{why}, or unlimited"))?;
    Ok(seconds.min(UNLIMITED))
}

/// `--exit-code`.
pub(crate) fn exit_code(text: &str) -> Result<ExitCodeOf, String> {
    match text {
        "first" => Ok(ExitCodeOf::First),
        "survivors" => Ok(ExitCodeOf::Survivors),
        _ => Err("expected first or survivors".to_owned()),
    }
}

/// `--fence`.
pub(crate) fn fence_mode(text: &str) -> Result<FenceMode, String> {
    match text {
        "collect" => Ok(FenceMode::Collect),
        "lazy" => Ok(FenceMode::Lazy),
        "auto" => Ok(FenceMode::Auto),
        _ => Err("expected collect, lazy or auto".to_owned()),
    }
}

/// `--shared-memory`.
pub(crate) fn shared_memory(text: &str) -> Result<SharedMemory, String> {
    match text {
        "all" => Ok(SharedMemory::All),
        "segments" => Ok(SharedMemory::Segments),
        "none" => Ok(SharedMemory::None),
        _ => Err("expected all, segments or none".to_owned()),
    }
}

/// `--pmi1-version`: its subversion.
pub(crate) fn pmi1_version(text: &str) -> Result<u32, String> {
    match text {
        "1.1" => Ok(1),
        "1.2" => Ok(2),
        _ => Err("expected 1.1 or 1.2".to_owned()),
    }
}

/// `--report-uri`.
pub(crate) fn uri_target(text: &str) -> Result<UriTarget, String> {
    match text {
        "" => Err("expected a file, - or +".to_owned()),
        "-" => Ok(UriTarget::Stdout),
        "+" => Ok(UriTarget::Stderr),
        path => Ok(UriTarget::File(path.into())),
    }
}

/// `--limit`.
pub(crate) fn limit(text: &str) -> Result<(Limit, u32), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=N, for example keys=100000")?;
    let known = limits().find(|limit| limit.name() == name);
    let limit = known.ok_or_else(|| format!("unknown limit '{name}'; expected one of {}", limit_names()))?;
    let most = match limit {
        Limit::SpawnBytes => MESSAGE_MAX,
        Limit::CommitBytes => COMMIT_BYTES_MAX,
        _ => u32::MAX,
    };
    let size = size.parse().ok().filter(|&size| size <= most);
    Ok((limit, size.ok_or_else(|| format!("expected a whole number up to {most}"))?))
}

/// Limits that the user can set. The number of links follows from the tree of nodes.
pub(crate) fn limits() -> impl Iterator<Item = Limit> {
    let settable = |limit: &Limit| *limit != Limit::Links && Limits::for_ranks(1).set(*limit, 1);
    Limit::ALL.into_iter().filter(settable)
}

fn limit_names() -> String {
    limits().map(Limit::name).collect::<Vec<_>>().join(", ")
}

/// `--bootstrap`.
pub(crate) fn bootstrap(text: &str) -> Result<Bootstrap, String> {
    match text {
        "ssh" => return Ok(Bootstrap::Ssh),
        "srun" | "slurm" => return Ok(Bootstrap::Srun),
        "qrsh" | "sge" => return Ok(Bootstrap::Qrsh),
        // hydra's name for it.
        "local" | "fork" => return Ok(Bootstrap::Local),
        // hydra's other names.
        "rsh" => return Err("write exec:'rsh {host} {args}'".to_owned()),
        "lsf" => return Err("write exec:'blaunch {host} {args}'".to_owned()),
        "join" => return Ok(Bootstrap::Join),
        "ll" | "manual" | "persist" => {
            return Err(
                "hydrant starts daemons by ssh, srun, qrsh or exec:'COMMAND {host} {args}'; with join hosts start them".to_owned()
            );
        }
        _ => {}
    }
    let command = text.strip_prefix("exec:");
    let command = command.ok_or("expected ssh, srun, qrsh, local, join or exec:'COMMAND {host} {args}'")?;
    let lines = quoting::split(command.as_bytes()).map_err(|error| error.to_string())?;
    let words: Vec<OsString> = lines.into_iter().flatten().map(|word| word.text).collect();
    let args = words.iter().filter(|word| word.to_string_lossy().contains("{args}")).count();
    if args == 1 && words[0] != "{args}" {
        Ok(Bootstrap::Exec(words))
    } else {
        Err("expected a command that contains {args} once, as in exec:'rsh {host} {args}'".to_owned())
    }
}

/// Timeout that the help shows in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Duration);

impl Timeout {
    /// Valid range in seconds: one millisecond to eleven days.
    const RANGE: RangeInclusive<f64> = 0.001..=1e6;
}

impl Display for Timeout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_secs_f64().fmt(f)
    }
}

/// `--heartbeat`, `--bootstrap-timeout`.
pub(crate) fn timeout(text: &str) -> Result<Timeout, String> {
    let seconds = text.parse().ok().filter(|seconds| Timeout::RANGE.contains(seconds));
    seconds
        .map(|seconds| Timeout(Duration::from_secs_f64(seconds)))
        .ok_or_else(|| "expected a number of seconds from 0.001 to 1000000, for example 30 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use hydrant_core::server::JobSpec;
    use hydrant_core::{Input, JobId, Rank, Server, Time};

    use super::*;
    use hydrant_driver::MappedStorage;

    #[test]
    fn sizes_have_units() {
        for (text, size) in [("1", 1), ("64K", 65_536), ("512M", 512 << 20), ("2G", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(bytes(text), Ok(size));
        }
        for wrong in ["", "0", "K", "-1", "1k", "1 M", "1.5G", "9999999T", "18446744073709551615"] {
            assert!(bytes(wrong).unwrap_err().contains("512M"), "{wrong}");
        }
    }

    #[test]
    fn an_assignment_is_cut_at_its_first_equals_sign() {
        let Assignment { name, value } = split_assignment(OsStr::new("OPTS=-Da=b")).unwrap();
        assert_eq!((name.to_str(), value.to_str()), (Some("OPTS"), Some("-Da=b")));
        assert_eq!(split_assignment(OsStr::new("EMPTY=")).unwrap().value, "");
        assert!(split_assignment(OsStr::new("=x")).is_err());
    }

    #[test]
    fn variables_of_the_launcher_cannot_be_assigned() {
        let error = split_assignment(OsStr::new("PMI_RANK=3")).unwrap_err();
        assert!(error.contains("PMI_RANK"), "{error}");
        assert!(split_assignment(OsStr::new("PMIX_MCA_gds=hash")).is_ok());
    }

    #[test]
    fn attributes_fit_into_pmi_and_are_not_the_servers_own() {
        let (name, value) = ("n".repeat(KEY_MAX as usize), "v".repeat(VALUE_MAX as usize));
        let longest = node_attribute(&format!("{name}={value}")).unwrap();
        assert_eq!(
            (longest.of, longest.name, longest.value),
            (AttributeOf::Nodes, name.clone(), value.clone())
        );
        assert_eq!(job_attribute("a==;b").unwrap().value, "=;b");
        for (wrong, cause) in [
            ("site", "expected NAME=VALUE"),
            ("=north", "a name of 1 to 64"),
            ("a b=c", "a name of 1 to 64"),
            ("a;b=c", "a name of 1 to 64"),
            (&format!("{name}n=v"), "a name of 1 to 64"),
            (&format!("site={value}v"), "the value has 1025 bytes, and PMI allows 1024"),
            ("site=a\nb", "control character"),
            ("universeSize=3", "hydrant sets the attribute universeSize"),
            ("pmix.hname.0=a", "hydrant sets"),
            ("node:x=a", "hydrant sets"),
            ("text:pmix.locstr@0=a", "hydrant sets"),
        ] {
            let error = job_attribute(wrong).unwrap_err();
            assert!(error.contains(cause), "{wrong}: {error}");
        }
    }

    #[test]
    fn patterns_have_known_codes_only() {
        let command = clap::Command::new("run");
        let pattern = |text: &str| pattern().parse_ref(&command, None, text.as_ref());
        assert!(pattern("out.%r.%h-100%%").is_ok());
        assert!(pattern("out.%d").is_err());
        assert!(pattern("out.%").is_err());
        assert!(pattern("").is_err());
        assert!(prefix_pattern("%h:%r%% ").is_ok());
        assert!(prefix_pattern("%p").is_err());
    }

    #[test]
    fn addresses_without_a_host_are_loopback() {
        assert_eq!(address(":5000").unwrap().to_string(), "127.0.0.1:5000");
        assert_eq!(address("localhost:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("0.0.0.0:7").unwrap().to_string(), "0.0.0.0:7");
        assert_eq!(address("[::1]:7").unwrap().to_string(), "[::1]:7");
        for wrong in ["", ":", "5000", ":70000", "host.example:1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_be_fractions_but_never_negative() {
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
        assert_eq!(seconds("0").unwrap(), Duration::ZERO);
        for wrong in ["-1", "NaN", "inf", "1e30", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_may_be_unlimited() {
        let unlimited = seconds_or_unlimited("unlimited").unwrap();
        assert!(unlimited > Duration::from_secs(1 << 31));
        assert_eq!(seconds_or_unlimited("1e18").unwrap(), unlimited, "milliseconds are counted in 64 bits");
        assert_eq!(seconds_or_unlimited("0.5").unwrap(), Duration::from_millis(500));
        assert!(seconds_or_unlimited("never").unwrap_err().ends_with(", or unlimited"));
    }

    #[test]
    fn clients_have_no_link_local_addresses() {
        assert!(pmi_address("[fe80::1%2]:0").is_err());
        assert!(address("[fe80::1%2]:0").is_ok());
        assert_eq!(pmi_address("[::1]:7"), address("[::1]:7"));
    }

    #[test]
    fn names_of_sets_are_those_that_the_server_accepts() {
        let limits = Limits::for_ranks(1);
        let mut slabs = MappedStorage::new(&limits);
        let mut server = Server::new(limits, slabs.lend(), 0).unwrap();
        server.handle(Time(0), Input::RegisterJob(JobSpec::new(JobId(0), "job", 1))).unwrap();
        let longest = PSET_NAME_MAX - PSET_SCHEME.len();
        let (long, longer) = ("x".repeat(longest), "x".repeat(longest + 1));
        let names = ["ocean", "app://x", "hydrant://app/7", "mpi:/x", "mpi", "~!=", &long];
        let others = ["", "a b", "a;b", "mpi://x", "MPI://", "\u{e9}", "a\n", &longer];
        for (name, good) in names.map(|name| (name, true)).into_iter().chain(others.map(|name| (name, false)))
        {
            let pset = Input::Pset { job: JobId(0), name, first: Rank(0), count: 1 };
            assert_eq!(
                (server.handle(Time(0), pset).is_ok(), pset_name(name).is_ok()),
                (good, good),
                "{name:?}"
            );
        }
    }

    #[test]
    fn every_limit_that_can_be_set_is_parsed() {
        for known in limits() {
            assert_eq!(limit(&format!("{}=7", known.name())).unwrap(), (known, 7));
        }
        assert!(limit("replies-owed=8").unwrap_err().contains("kvs-bytes"));
        assert!(limit("links=8").unwrap_err().contains("kvs-bytes"));
        assert!(limit("spawn-bytes=65536").is_ok() && limit("spawn-bytes=65537").is_err());
        assert!(limit("commit-bytes=61440").is_ok() && limit("commit-bytes=61441").is_err());
        assert!(limit("keys").is_err());
        assert!(limit("keys=-1").is_err());
        assert!(limit("keys=4294967296").is_err());
    }
}
