//! Words of the plugin's line in plugstack.conf, and the value of `--hydrant`.

use std::path::PathBuf;
use std::time::Duration;

/// Value of `--hydrant` for the built-in server.
const BUILT_IN: &str = "built-in";
/// Time of one call of a plugin, unless the line has another one.
const CALL: Duration = Duration::from_secs(5);
/// Time for all nodes to connect to the head, unless the line has another one: `PMIxTimeout` of Slurm's mpi.conf.
const JOIN: Duration = Duration::from_secs(300);

/// Settings of the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Plugins by name. The one without a name is the default.
    plugins: Vec<(String, PathBuf)>,
    /// Folder for compiled code.
    pub(crate) cache: Option<PathBuf>,
    /// Maximum time of one call of a plugin.
    pub(crate) call: Duration,
    /// Maximum time for all nodes of a step to connect to the head.
    pub(crate) join: Duration,
}

/// Why a word or a value is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    #[error(
        "{0}: unknown; known are plugin=FILE, plugin.NAME=FILE, cache=FOLDER, call-ms=NUMBER and join-seconds=NUMBER"
    )]
    Unknown(String),
    #[error("{0}: given twice")]
    Twice(String),
    #[error("{0}: not an absolute path")]
    Relative(String),
    #[error("{0}: not a number of milliseconds from 1 to 3600000")]
    Millis(String),
    #[error("{0}: not a number of seconds from 1 to 86400")]
    Seconds(String),
    #[error("{0}: a name has letters, digits, '-' and '_', and is not `{BUILT_IN}`")]
    Name(String),
    #[error("--hydrant={name}: no such server; {known}")]
    NoServer { name: String, known: String },
}

impl Arguments {
    /// Reads the words behind the library's path in plugstack.conf.
    pub(crate) fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Arguments, ArgumentError> {
        let mut read = Arguments { plugins: Vec::new(), cache: None, call: CALL, join: JOIN };
        let (mut call, mut join) = (None, None);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| ArgumentError::Unknown(word.to_owned()))?;
            let twice = match key {
                "plugin" => read.add("", value, word)?,
                "cache" => read.cache.replace(absolute(value, word)?).is_some(),
                "call-ms" => call.replace(millis(value, word)?).is_some(),
                "join-seconds" => join.replace(seconds(value, word)?).is_some(),
                _ => {
                    let name =
                        key.strip_prefix("plugin.").ok_or_else(|| ArgumentError::Unknown(word.to_owned()))?;
                    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                    if name.is_empty() || name == BUILT_IN || !name.bytes().all(letters) {
                        return Err(ArgumentError::Name(word.to_owned()));
                    }
                    read.add(name, value, word)?
                }
            };
            if twice {
                return Err(ArgumentError::Twice(word.to_owned()));
            }
        }
        (read.call, read.join) = (call.unwrap_or(CALL), join.unwrap_or(JOIN));
        Ok(read)
    }

    /// Adds a plugin. Returns whether there was one of this name.
    fn add(&mut self, name: &str, value: &str, word: &str) -> Result<bool, ArgumentError> {
        let twice = self.plugins.iter().any(|(known, _)| known == name);
        self.plugins.push((name.to_owned(), absolute(value, word)?));
        Ok(twice)
    }

    /// Returns the plugin's file for a value of `--hydrant`, none for the built-in server.
    pub(crate) fn server(&self, value: &str) -> Result<Option<&PathBuf>, ArgumentError> {
        if value == BUILT_IN {
            return Ok(None);
        }
        match self.plugins.iter().find(|(name, _)| name == value) {
            Some((_, file)) => Ok(Some(file)),
            None if value.is_empty() => Ok(None),
            None => {
                let names =
                    self.plugins.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty());
                let known = [BUILT_IN].into_iter().chain(names).collect::<Vec<_>>().join(", ");
                Err(ArgumentError::NoServer { name: value.to_owned(), known: format!("there are {known}") })
            }
        }
    }
}

fn absolute(value: &str, word: &str) -> Result<PathBuf, ArgumentError> {
    if value.starts_with('/') { Ok(value.into()) } else { Err(ArgumentError::Relative(word.to_owned())) }
}

fn millis(value: &str, word: &str) -> Result<Duration, ArgumentError> {
    let number = value.parse().ok().filter(|millis| (1..=3_600_000).contains(millis));
    number.map(Duration::from_millis).ok_or_else(|| ArgumentError::Millis(word.to_owned()))
}

fn seconds(value: &str, word: &str) -> Result<Duration, ArgumentError> {
    let number = value.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    number.map(Duration::from_secs).ok_or_else(|| ArgumentError::Seconds(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(words: &str) -> Result<Arguments, ArgumentError> {
        Arguments::read(words.split_whitespace())
    }

    #[test]
    fn the_value_of_the_option_chooses_a_server() {
        let words =
            "plugin=/lib/hydrant.wasm plugin.next=/lib/next.wasm cache=/var/cache/hydrant call-ms=250";
        let arguments = read(words).unwrap();
        assert_eq!(arguments.cache.as_deref(), Some(Path::new("/var/cache/hydrant")));
        assert_eq!(arguments.call, Duration::from_millis(250));
        let server = |value| arguments.server(value).map(|file| file.map(|file| file.to_str().unwrap()));
        assert_eq!(server(""), Ok(Some("/lib/hydrant.wasm")));
        assert_eq!(server("next"), Ok(Some("/lib/next.wasm")));
        assert_eq!(server("built-in"), Ok(None));
        let error = server("last").unwrap_err().to_string();
        assert_eq!(error, "--hydrant=last: no such server; there are built-in, next");
    }

    #[test]
    fn without_a_plugin_the_server_is_built_in() {
        let arguments = read("").unwrap();
        assert_eq!((arguments.server(""), arguments.call, arguments.join), (Ok(None), CALL, JOIN));
        assert_eq!(read("join-seconds=20").unwrap().join, Duration::from_secs(20));
    }

    #[test]
    fn other_words_are_refused() {
        let named = |error: fn(String) -> ArgumentError, word: &str| Err(error(word.to_owned()));
        assert_eq!(read("plugin"), named(ArgumentError::Unknown, "plugin"));
        assert_eq!(read("log=/x"), named(ArgumentError::Unknown, "log=/x"));
        assert_eq!(read("plugin=x.wasm"), named(ArgumentError::Relative, "plugin=x.wasm"));
        assert_eq!(read("plugin=/a plugin=/b"), named(ArgumentError::Twice, "plugin=/b"));
        assert_eq!(read("cache=/a cache=/a"), named(ArgumentError::Twice, "cache=/a"));
        assert_eq!(read("call-ms=0"), named(ArgumentError::Millis, "call-ms=0"));
        assert_eq!(read("join-seconds=1.5"), named(ArgumentError::Seconds, "join-seconds=1.5"));
        assert_eq!(read("join-seconds=1 join-seconds=2"), named(ArgumentError::Twice, "join-seconds=2"));
        assert_eq!(read("plugin.=/a"), named(ArgumentError::Name, "plugin.=/a"));
        assert_eq!(read("plugin.built-in=/a"), named(ArgumentError::Name, "plugin.built-in=/a"));
    }
}
