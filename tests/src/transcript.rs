//! Captured exchanges, as `tests/transcripts` holds them.

use std::fs;
use std::path::{Path, PathBuf};

/// One rank's exchange with its process manager.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The file's name without `.txt`.
    pub name: String,
    /// Variables that the client was started with.
    pub env: Vec<(String, String)>,
    /// What was said, in order.
    pub steps: Vec<Step>,
}

/// One captured line.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Seconds, where the capture had them.
    pub time: Option<f64>,
    /// Who spoke.
    pub from: Side,
    /// What; nothing where that side closed the connection.
    pub bytes: Option<Vec<u8>>,
}

/// Who spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `C>`: the client.
    Client,
    /// `P>`: the process manager.
    Manager,
}

/// The folder of the transcripts.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

/// Every transcript, in the order of their names.
pub fn all() -> Vec<Transcript> {
    let folder = folder();
    let mut names: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("an entry of a folder that was just opened").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    names.sort();
    names.iter().map(|path| read(path)).collect()
}

/// Reads one file; panics with its name and line where it is not a transcript.
pub fn read(path: &Path) -> Transcript {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name =
        path.file_stem().and_then(|stem| stem.to_str()).expect("transcripts have ASCII names").to_owned();
    let mut transcript = Transcript { name, env: Vec::new(), steps: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        if let Some((key, value)) = line.strip_prefix("ENV ").and_then(|rest| rest.split_once('=')) {
            transcript.env.push((key.to_owned(), value.to_owned()));
        } else {
            let step = step(line).unwrap_or_else(|| panic!("{}:{}: {line:?}", path.display(), number + 1));
            transcript.steps.push(step);
        }
    }
    transcript
}

fn step(line: &str) -> Option<Step> {
    let at = line.find("> ")?;
    let (head, literal) = (&line[..at], &line[at + 2..]);
    let (time, side) = match head.rsplit_once(' ') {
        Some((time, side)) => (Some(time.parse().ok()?), side),
        None => (None, head),
    };
    let from = match side {
        "C" => Side::Client,
        "P" => Side::Manager,
        _ => return None,
    };
    let bytes = match literal {
        "EOF" | "b'EOF'" => None,
        _ => Some(bytes_literal(literal)?),
    };
    Some(Step { time, from, bytes })
}

/// A bytes literal of Python.
fn bytes_literal(literal: &str) -> Option<Vec<u8>> {
    let inner = literal.strip_prefix('b')?;
    let quote = inner.chars().next().filter(|&c| c == '\'' || c == '"')?;
    let mut rest = inner[1..].strip_suffix(quote)?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            },
            other => other,
        });
    }
    Some(bytes)
}

impl Transcript {
    /// The name without the rank: transcripts of one run share it.
    pub fn family(&self) -> &str {
        self.name.rsplit_once(".rank").map_or(&self.name, |(family, _)| family)
    }

    /// The rank, from the name.
    pub fn rank(&self) -> u32 {
        self.name.rsplit_once(".rank").and_then(|(_, rank)| rank.parse().ok()).unwrap_or(0)
    }

    /// A variable that the client was started with.
    pub fn env(&self, key: &str) -> Option<&str> {
        self.env.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let step = step(r"0.5 C> b'20    cmd=kvs-fence;\x00;va\\l\'u\n'").unwrap();
        assert_eq!((step.time, step.from), (Some(0.5), Side::Client));
        assert_eq!(step.bytes.unwrap(), b"20    cmd=kvs-fence;\0;va\\l'u\n");
        let eof = super::step("P> EOF").unwrap();
        assert_eq!((eof.time, eof.from, eof.bytes), (None, Side::Manager, None));
        assert!(super::step("X> b''").is_none());
        assert!(super::step("C> 'text'").is_none());
    }

    #[test]
    fn every_transcript_is_read() {
        let all = all();
        assert!(all.len() >= 40, "only {} transcripts", all.len());
        for transcript in all {
            assert!(transcript.steps.iter().any(|step| step.from == Side::Client), "{}", transcript.name);
        }
    }
}
