//! Host files of hydra, Open MPI, PBS, LSF and Grid Engine: one host a line.

use std::io;
use std::path::Path;

use hydrant_reactor::file::{TEXT_MAX, Taken};

use crate::error::{LineError, PlacementError};
use crate::excerpt::excerpt;
use crate::hosts::{self, Host, Hosts};

/// Format of the lines of a host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `[USER@]HOST[:SLOTS] [slots=N] [max_slots=N] [user=NAME]`: hydra and Open MPI.
    Words,
    /// `HOST`, one line for each slot: PBS and LSF.
    Slots,
    /// `HOST SLOTS QUEUE PROCESSORS`: Grid Engine.
    Columns,
}

/// Text without the byte order mark that some editors write in front of UTF-8.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads a host file. `variable` is the environment variable that named the file, for errors.
///
/// # Errors
/// The file cannot be read, has an invalid line, or names no host.
pub fn read(file: &Path, format: Format, variable: Option<&'static str>) -> Result<Hosts, PlacementError> {
    let unreadable = |why| PlacementError::Unreadable { file: file.to_owned(), variable, why };
    let text = read_file(file).map_err(unreadable)?;
    let hosts = parse(&text, format).map_err(|(line, why)| PlacementError::Line {
        file: file.to_owned(),
        line,
        why,
    })?;
    if hosts.is_empty() {
        return Err(PlacementError::EmptyFile { file: file.to_owned(), variable });
    }
    Ok(hosts)
}

/// Reads a file that the user or a resource manager has named.
pub(crate) fn read_file(file: &Path) -> io::Result<Vec<u8>> {
    Ok(hydrant_reactor::file::read(file, Taken::Streams, TEXT_MAX)?)
}

/// Parses the text of a host file. `#` starts a comment.
///
/// # Errors
/// The number of the first invalid line, from 1, and what is wrong with it.
pub fn parse(text: &[u8], format: Format) -> Result<Hosts, (usize, LineError)> {
    let mut hosts = Hosts::default();
    let text = without_byte_order_mark(text);
    for (line, bytes) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let added = std::str::from_utf8(bytes).map_err(|_| LineError::NotUtf8).and_then(|text| {
            let text = text.split('#').next().unwrap_or_default();
            for host in parse_line(text, format)? {
                hosts.add(host)?;
            }
            Ok(())
        });
        added.map_err(|why| (line, why))?;
    }
    Ok(hosts)
}

/// Parses one line: no host if the line is empty, several if the name is a short form with brackets.
fn parse_line(line: &str, format: Format) -> Result<Vec<Host>, LineError> {
    // Open MPI allows blanks around the equals sign.
    let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else { return Ok(Vec::new()) };
    match format {
        Format::Words => {
            let mut hosts = hosts::parse_entry(name)?;
            for word in words {
                for host in &mut hosts {
                    apply_word(host, word)?;
                }
            }
            // `max_slots=N` alone gives N slots.
            for host in &mut hosts {
                host.slots = host.slots.or(host.max_slots);
            }
            Ok(hosts)
        }
        Format::Slots => match words.next() {
            None => Ok(vec![Host::with_slots(name, 1)]),
            Some(word) => Err(LineError::Word(excerpt(word))),
        },
        Format::Columns => {
            let slots = words.next().ok_or_else(|| LineError::NoSlots(excerpt(name)))?;
            Ok(vec![Host::with_slots(name, hosts::parse_slots(slots)?)])
        }
    }
}

/// Applies a word behind the host name, such as `slots=4`.
fn apply_word(host: &mut Host, word: &str) -> Result<(), LineError> {
    let unknown = || LineError::Word(excerpt(word));
    let (key, value) = word.split_once('=').ok_or_else(unknown)?;
    let is_repeated = match key {
        "slots" => host.slots.replace(hosts::parse_slots(value)?).is_some(),
        "max_slots" | "max-slots" => host.max_slots.replace(hosts::parse_slots(value)?).is_some(),
        "user" | "username" | "user_name" | "user-name" => {
            host.user.replace(hosts::parse_user(value)?).is_some()
        }
        "binding" => return Err(LineError::Binding(excerpt(word))),
        _ => return Err(unknown()),
    };
    if is_repeated { Err(LineError::Twice(key.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    fn read_text(format: Format, text: &str) -> Result<Vec<Host>, String> {
        let file = TestFile::new(text.as_bytes());
        let hosts = read(file.path(), format, None)
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))?;
        Ok(hosts.iter().cloned().collect())
    }

    fn error(text: &str) -> String {
        read_text(Format::Words, text).unwrap_err()
    }

    #[test]
    fn hydra_files_are_read() {
        // The example of hydra's documentation, with `user=` added.
        let text = "# This is a sample host file\ndonner:2     # The first 2 procs are scheduled to run here\n\
                    foo:3        # The next 3 procs run on this host\n\nshakey user=joe\nterra:1\r\ndonner\n";
        let shakey = Host { user: Some("joe".to_owned()), ..Host::new("shakey") };
        let expected =
            [Host::with_slots("donner", 3), Host::with_slots("foo", 3), shakey, Host::with_slots("terra", 1)];
        assert_eq!(read_text(Format::Words, text).unwrap(), expected);
    }

    // Fault: A host file has an invalid line of 10 MB
    // Outcome: the error shows its beginning
    // Guarantee: Errors show at most 60 characters of the input, escaped
    #[test]
    fn errors_show_the_beginning_of_a_long_line() {
        let long = "x".repeat(1 << 20);
        let cut = format!("{}...", "x".repeat(60));
        for (text, expected) in [
            (format!("a {long}"), format!("FILE line 1: unknown word '{cut}': expected")),
            (long.clone(), format!("FILE line 1: invalid host name '{cut}': use")),
            (format!("a:{long}"), format!("FILE line 1: invalid number of slots '{cut}': give")),
            (format!("a[{long}]"), format!("FILE line 1: invalid range '{cut}' between")),
            (format!("a user=/{long}"), format!("FILE line 1: invalid user name '/{}", &cut[1..])),
        ] {
            let error = error(&text);
            assert!(error.starts_with(&expected), "{}", &error[..error.len().min(200)]);
        }
    }

    #[test]
    fn open_mpi_files_are_read() {
        let text = "# This is a comment line, and will be ignored\nnode01  slots=10\nnode13 slots = 5 max-slots = 6\n\
                    node17 max_slots=3\n\tn[1-2] slots=2 user=a\n";
        let limited = |name, slots, max| Host { max_slots: Some(max), ..Host::with_slots(name, slots) };
        let users = |name| Host { user: Some("a".to_owned()), ..Host::with_slots(name, 2) };
        let expected = [
            Host::with_slots("node01", 10),
            limited("node13", 5, 6),
            limited("node17", 3, 3),
            users("n1"),
            users("n2"),
        ];
        assert_eq!(read_text(Format::Words, text).unwrap(), expected);
    }

    #[test]
    fn a_file_may_have_a_byte_order_mark_and_users_before_hosts() {
        let joe = |host| Host { user: Some("joe".to_owned()), ..host };
        let expected = [joe(Host::with_slots("a", 2)), joe(Host::with_slots("b", 3)), Host::new("c")];
        let text = "\u{feff}joe@a:2\njoe@b slots=3\nc\n";
        assert_eq!(read_text(Format::Words, text).unwrap(), expected);
        assert_eq!(error("joe@a user=x"), "FILE line 1: 'user' is given twice");
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let lines = [
            error("a\nb slots=x"),
            error("a\n# c\n\nb:2 slots=2"),
            error("a binding=user:0,1"),
            error("a sockets=2"),
            error("a slots"),
            error("a user=-l"),
            error("-oProxyCommand=x"),
            error("a slots=4 max_slots=2"),
            error("a\nn[3-1]"),
            error("a\na user=b"),
            error("# nothing\n"),
            read_text(Format::Slots, "a\na 2").unwrap_err(),
            read_text(Format::Columns, "a 2 q\nb").unwrap_err(),
        ];
        insta::assert_snapshot!(lines.join("\n"));
        let file = TestFile::new(b"a\n\xff\n");
        assert!(
            read(file.path(), Format::Words, None)
                .unwrap_err()
                .to_string()
                .ends_with("line 2: not UTF-8 text")
        );
        let missing = read(Path::new("/dev/null/hosts"), Format::Slots, Some("PBS_NODEFILE")).unwrap_err();
        assert!(missing.to_string().contains("(named by PBS_NODEFILE)"), "{missing}");
    }
}
