//! mpiexec's grammar, as far as it differs from everybody's: long options with one dash, `-env NAME VALUE`, programs
//! separated by `:`, and everything behind a program's name its own. What comes out is in clap's spelling.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Args, Command};

use super::args::JobArgs;
use super::error::{At, UsageError, shown};
use super::offload::OffloadArgs;
use super::{elsewhere, value};

/// A word of the command line or of a configuration file.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: OsString,
    pub(super) at: At,
}

/// An option as it was given, and as clap reads it.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) at: At,
    /// As the user wrote it, without its value.
    pub(super) spelled: String,
    /// `--name` or `--name=value`.
    pub(super) normal: OsString,
    /// Its name in clap.
    pub(super) id: String,
    /// Whether it holds for the whole job.
    pub(super) of_job: bool,
}

impl Given {
    /// What stands behind the option.
    pub(super) fn value(&self) -> &OsStr {
        let bytes = self.normal.as_bytes();
        let equals = bytes.iter().position(|&byte| byte == b'=');
        OsStr::from_bytes(equals.map_or(&[], |at| &bytes[at + 1..]))
    }
}

/// The options and the words of one program.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Where the program's name stands, or should.
    pub(super) at: At,
    pub(super) options: Vec<Given>,
    /// The program and its arguments; empty where none is named.
    pub(super) command: Vec<OsString>,
}

/// Why reading ends before the last word.
#[derive(Debug)]
pub(super) enum Stop {
    /// Help was asked for, the long one or the short one.
    Help {
        long: bool,
    },
    Version,
    Wrong(UsageError),
}

impl From<UsageError> for Stop {
    fn from(error: UsageError) -> Stop {
        Stop::Wrong(error)
    }
}

/// How many words an option takes behind it.
enum Takes {
    Nothing,
    One,
    /// One `NAME=VALUE`, or two.
    Assignment,
    /// One if it is an address.
    PerhapsAddress,
    /// What follows an equals sign, if anything does.
    Inline,
}

impl Takes {
    fn of(arg: &Arg) -> Takes {
        match arg.get_id().as_str() {
            _ if !arg.get_action().takes_values() => Takes::Nothing,
            "env" | "genv" => Takes::Assignment,
            "pmi_port" => Takes::PerhapsAddress,
            "sandbox" => Takes::Inline,
            _ => Takes::One,
        }
    }
}

/// Reads the words of one command line.
pub(super) struct Grammar {
    command: Command,
    job: Command,
}

impl Grammar {
    /// For the options of this command.
    pub(super) fn new(mut command: Command) -> Grammar {
        command.build();
        Grammar { command, job: OffloadArgs::augment_args(JobArgs::augment_args(Command::new("job"))) }
    }

    /// The command whose options these are.
    pub(super) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Cuts words at each lone `:` behind a program's name and reads the options before it. At least one segment.
    pub(super) fn segments(&self, words: &[Word], end: &At) -> Result<Vec<Segment>, Stop> {
        let mut words = words.iter();
        let mut segments = Vec::new();
        loop {
            let mut segment = self.options(&mut words, end)?;
            let mut more = false;
            for word in words.by_ref() {
                more = word.text == ":";
                if more {
                    break;
                }
                segment.command.push(word.text.clone());
            }
            segments.push(segment);
            if !more {
                return Ok(segments);
            }
        }
    }

    /// Reads options up to a program's name, and that.
    fn options(&self, words: &mut std::slice::Iter<'_, Word>, end: &At) -> Result<Segment, Stop> {
        let mut segment = Segment { at: end.clone(), options: Vec::new(), command: Vec::new() };
        while let Some(word) = words.as_slice().first() {
            segment.at = word.at.clone();
            if word.text == ":" {
                return Ok(segment);
            }
            words.next();
            let bytes = word.text.as_bytes();
            if word.text == "--" {
                // The next word is the program, whatever it looks like.
                if let Some(program) = words.next() {
                    segment.at = program.at.clone();
                    segment.command.push(program.text.clone());
                }
                return Ok(segment);
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                segment.command.push(word.text.clone());
                return Ok(segment);
            }
            let given = self.option(word, words)?;
            segment.options.push(given);
        }
        segment.at = end.clone();
        Ok(segment)
    }

    /// Reads one option and what stands behind it.
    fn option(&self, word: &Word, words: &mut std::slice::Iter<'_, Word>) -> Result<Given, Stop> {
        let bytes = word.text.as_bytes();
        let name_end = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
        let spelled = shown(OsStr::from_bytes(&bytes[..name_end]));
        let name = spelled.trim_start_matches('-');
        let inline = bytes.get(name_end + 1..);
        let Some(arg) = self.find(name) else { return Err(self.unknown(word, name, &spelled).into()) };
        match arg.get_action() {
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong => {
                return Err(Stop::Help { long: name != "h" });
            }
            ArgAction::Version => return Err(Stop::Version),
            _ => {}
        }

        let no_value = || UsageError::NoValue {
            at: word.at.clone(),
            option: spelled.clone(),
            wants: arg
                .get_value_names()
                .and_then(|names| names.first())
                .map_or_else(String::new, ToString::to_string),
        };
        let mut take = || words.next().map(|next| next.text.clone().into_vec()).ok_or_else(no_value);
        let value = match (Takes::of(arg), inline) {
            (Takes::Nothing | Takes::Inline, None) => None,
            (Takes::Nothing, Some(_)) => {
                return Err(UsageError::Superfluous { at: word.at.clone(), option: spelled }.into());
            }
            (Takes::Assignment, inline) => {
                let mut value = inline.map_or_else(&mut take, |inline| Ok(inline.to_vec()))?;
                if !value.contains(&b'=') {
                    value.push(b'=');
                    value.extend(take()?);
                }
                Some(value)
            }
            (_, Some(inline)) => Some(inline.to_vec()),
            (Takes::One, None) => Some(take()?),
            (Takes::PerhapsAddress, None) => {
                let next = words.as_slice().first().and_then(|next| next.text.to_str());
                match next.is_some_and(|next| value::address(next).is_ok()) {
                    true => words.next().map(|next| next.text.clone().into_vec()),
                    false => None,
                }
            }
        };

        let long = arg.get_long().expect("every option of a job has a long name");
        let mut normal = OsString::from(format!("--{long}"));
        if let Some(value) = value {
            normal.push("=");
            normal.push(OsString::from_vec(value));
        }
        let of_job = self.job.get_arguments().any(|of_job| of_job.get_id() == arg.get_id());
        Ok(Given { at: word.at.clone(), spelled, normal, id: arg.get_id().to_string(), of_job })
    }

    fn find(&self, name: &str) -> Option<&Arg> {
        self.command.get_arguments().find(|arg| {
            arg.get_short().is_some_and(|short| name.chars().eq([short]))
                || arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        })
    }

    fn unknown(&self, word: &Word, name: &str, spelled: &str) -> UsageError {
        let advice = match (elsewhere::advice(name), self.glued(name), self.similar(name)) {
            (Some(advice), _, _) => format!(": {advice}"),
            (_, Some((short, rest)), _) => format!("; write -{short} {rest}"),
            (_, _, Some(similar)) => format!("; the nearest is {similar}"),
            _ => "; a program whose name starts with a dash is written behind --".to_owned(),
        };
        UsageError::Unknown { at: word.at.clone(), option: spelled.to_owned(), advice }
    }

    /// `-n4`: a one-letter option that takes a value, and a number.
    fn glued<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let (short, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let arg = self.find(short)?;
        (arg.get_action().takes_values() && rest.chars().all(|c| c.is_ascii_digit())).then_some((short, rest))
    }

    /// The option whose name clap finds most like this one.
    fn similar(&self, name: &str) -> Option<String> {
        use clap::error::{ContextKind, ContextValue};
        let command = self.command.clone();
        let error = command.try_get_matches_from(["run".to_owned(), format!("--{name}")]).err()?;
        match error.get(ContextKind::SuggestedArg)? {
            ContextValue::String(similar) => Some(similar.clone()),
            ContextValue::Strings(similar) => similar.first().cloned(),
            _ => None,
        }
    }
}
