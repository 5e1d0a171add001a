//! Argument scanner for mpiexec's syntax.
//!
//! mpiexec differs from the GNU conventions in four ways: long options with one dash, `-env NAME VALUE`, programs
//! separated by `:`, and no options after the name of a program. The scanner rewrites each option in clap's spelling.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};

use super::argument::{Argument, Location, ParsedOption, escaped};
use super::environment::Environment;
use super::error::UsageError;
use super::foreign::{self, Meaning};
use super::similar;
use crate::value;

/// Options and command of one program.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Location of the program's name, or the place where it is missing.
    pub(super) location: Location,
    pub(super) options: Vec<ParsedOption>,
    /// How options of other launchers were read.
    pub(super) notes: Vec<String>,
    /// The program and its arguments; empty if no program is given.
    pub(super) command: Vec<OsString>,
}

/// Reason to stop before the last argument.
#[derive(Debug)]
pub(super) enum EarlyExit {
    /// Request for the long or the short help.
    Help {
        long: bool,
    },
    /// Request for the long or the short form of the version.
    Version {
        long: bool,
    },
    Usage(UsageError),
}

impl From<UsageError> for EarlyExit {
    fn from(error: UsageError) -> EarlyExit {
        EarlyExit::Usage(error)
    }
}

/// Number and form of an option's values.
enum Values {
    None,
    One,
    /// One `NAME=VALUE`, or a name and a value.
    Assignment,
    /// One if it is an address, otherwise none.
    OptionalAddress,
    /// One after `=`, or none.
    OptionalInline,
}

impl Values {
    fn of(arg: &Arg) -> Values {
        match arg.get_id().as_str() {
            _ if !arg.get_action().takes_values() => Values::None,
            "env" | "genv" => Values::Assignment,
            "pmi_port" => Values::OptionalAddress,
            "json" | "sandbox" => Values::OptionalInline,
            _ => Values::One,
        }
    }
}

/// Scanner for the options of one command.
pub(super) struct Scanner<'e> {
    command: Command,
    program_options: Command,
    environment: &'e Environment,
}

/// Iterator over the arguments behind an option.
type Rest<'a> = std::slice::Iter<'a, Argument>;

impl Scanner<'_> {
    /// `program_options` holds the options that apply to one program. All others apply to the whole job. `environment` is that of
    /// the launcher.
    pub(super) fn new(
        mut command: Command,
        program_options: Command,
        environment: &Environment,
    ) -> Scanner<'_> {
        command.build();
        Scanner { command, program_options, environment }
    }

    /// The command whose options are scanned.
    pub(super) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Splits arguments at each `:` that follows the name of a program, and parses the options of each part. Returns
    /// at least one segment. `end` is the location after the last argument.
    pub(super) fn segments(&self, arguments: &[Argument], end: &Location) -> Result<Vec<Segment>, EarlyExit> {
        let mut arguments = arguments.iter();
        let mut segments = Vec::new();
        loop {
            let mut segment = self.options(&mut arguments, end)?;
            let mut more = false;
            for argument in arguments.by_ref() {
                more = argument.text == ":";
                if more {
                    break;
                }
                segment.command.push(argument.text.clone());
            }
            segments.push(segment);
            if !more {
                return Ok(segments);
            }
        }
    }

    /// Returns the file of `--json` in a command line that is invalid. Unknown options are taken for switches, so that no argument
    /// of a program is taken for the file.
    pub(super) fn json(&self, arguments: &[Argument]) -> Option<PathBuf> {
        let (mut rest, mut file) = (arguments.iter(), None);
        while let Some(argument) = rest.next() {
            let bytes = argument.text.as_bytes();
            if bytes.len() < 2 || bytes[0] != b'-' || argument.text == "--" {
                break;
            }
            let (name, _, inline) = parts(argument);
            match self.find(&name).map(|arg| (arg.get_id().as_str(), Values::of(arg))) {
                Some(("json", _)) => file = Some(PathBuf::from(OsStr::from_bytes(inline.unwrap_or(b"-")))),
                Some((_, Values::One)) if inline.is_none() => drop(rest.next()),
                Some((_, Values::Assignment)) => {
                    let pair =
                        if inline.is_none() { rest.next().map(|next| next.text.as_bytes()) } else { inline };
                    if pair.is_some_and(|pair| !pair.contains(&b'=')) {
                        rest.next();
                    }
                }
                _ => {}
            }
        }
        file
    }

    /// Parses options up to and including the name of a program.
    fn options(&self, arguments: &mut Rest<'_>, end: &Location) -> Result<Segment, EarlyExit> {
        let (options, notes, command) = (Vec::new(), Vec::new(), Vec::new());
        let mut segment = Segment { location: end.clone(), options, notes, command };
        while let Some(argument) = arguments.as_slice().first() {
            segment.location = argument.location.clone();
            if argument.text == ":" {
                return Ok(segment);
            }
            arguments.next();
            let bytes = argument.text.as_bytes();
            if argument.text == "--" {
                // The next argument is the program, even if it starts with a dash.
                if let Some(program) = arguments.next() {
                    segment.location = program.location.clone();
                    segment.command.push(program.text.clone());
                }
                return Ok(segment);
            }
            if bytes.len() < 2 || bytes[0] != b'-' {
                segment.command.push(argument.text.clone());
                return Ok(segment);
            }
            let (name, spelling, inline) = parts(argument);
            if self.find(&name).is_some() {
                segment.options.push(self.option(argument, arguments)?);
            } else {
                let (options, note) = self.foreign(argument, (&name, &spelling, inline), arguments)?;
                segment.options.extend(options);
                segment.notes.push(note);
            }
        }
        segment.location = end.clone();
        Ok(segment)
    }

    /// Parses an option that hydrant does not have, with its values. Returns its equivalents, and how it was read.
    fn foreign(
        &self,
        argument: &Argument,
        (name, spelling, inline): (&str, &str, Option<&[u8]>),
        rest: &mut Rest<'_>,
    ) -> Result<(Vec<ParsedOption>, String), EarlyExit> {
        let unknown = |hint: String| {
            let (location, option) = (argument.location.clone(), spelling.to_owned());
            EarlyExit::from(UsageError::UnknownOption { location, option, hint })
        };
        let meaning = match (foreign::meaning(name), self.split_attached(name)) {
            (Some(meaning), _) => meaning,
            (None, Some((short, number))) if inline.is_none() => {
                let words = [format!("-{short}"), number.to_owned()].map(OsString::from);
                return Ok((self.equivalents(argument, spelling, &words)?, read_as(spelling, &words)));
            }
            (None, _) => return Err(unknown(self.hint(name))),
        };
        let values = match meaning {
            Meaning::Converted(count, _) | Meaning::Ignored(count, _) => *count,
            Meaning::Renamed(_) | Meaning::Fixed(_) | Meaning::Refused(_) => 0,
        };
        let mut taken: Vec<OsString> = Vec::new();
        if values > 0 {
            taken.extend(inline.map(|inline| OsString::from_vec(inline.to_vec())));
            while taken.len() < values {
                self.check_value(argument, spelling, rest)?;
                let next = rest.next().map(|next| next.text.clone());
                taken.push(next.ok_or_else(|| UsageError::MissingValue {
                    location: argument.location.clone(),
                    option: spelling.to_owned(),
                    placeholder: if values == 1 { "VALUE" } else { "NAME VALUE" }.to_owned(),
                })?);
            }
        }
        let words: Vec<OsString> = match meaning {
            Meaning::Renamed(target) => {
                let mut text = OsString::from(format!("-{target}"));
                let inline = inline.map(|inline| [b"=", inline].concat()).unwrap_or_default();
                text.push(OsStr::from_bytes(&inline));
                let renamed = Argument { text, location: argument.location.clone() };
                let option = ParsedOption { spelling: spelling.to_owned(), ..self.option(&renamed, rest)? };
                return Ok((vec![option], format!("{spelling} is read as -{target}")));
            }
            Meaning::Fixed(words) => words.iter().map(OsString::from).collect(),
            Meaning::Converted(_, convert) => {
                convert(&taken, self.environment).map_err(|remedy| UsageError::InvalidValue {
                    location: argument.location.clone(),
                    option: spelling.to_owned(),
                    value: escaped(taken.last().map_or(OsStr::new(""), |value| value)),
                    expected: remedy.to_owned(),
                })?
            }
            Meaning::Ignored(_, reason) => {
                return Ok((Vec::new(), format!("{spelling} has no effect: {reason}")));
            }
            Meaning::Refused(hint) => return Err(unknown((*hint).to_owned())),
        };
        Ok((self.equivalents(argument, spelling, &words)?, read_as(spelling, &words)))
    }

    /// Parses options of hydrant in place of a foreign one.
    fn equivalents(
        &self,
        argument: &Argument,
        spelling: &str,
        words: &[OsString],
    ) -> Result<Vec<ParsedOption>, EarlyExit> {
        let as_argument =
            |text: &OsString| Argument { text: text.clone(), location: argument.location.clone() };
        let words: Vec<Argument> = words.iter().map(as_argument).collect();
        let mut words = words.iter();
        let mut options = Vec::new();
        while let Some(word) = words.next() {
            let option = self.option(word, &mut words)?;
            options.push(ParsedOption { spelling: spelling.to_owned(), ..option });
        }
        Ok(options)
    }

    /// Parses one option of hydrant and its value.
    fn option(&self, argument: &Argument, rest: &mut Rest<'_>) -> Result<ParsedOption, EarlyExit> {
        let (name, spelling, inline) = parts(argument);
        let arg = self.find(&name).expect("the caller has found the option");
        match arg.get_action() {
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong => {
                return Err(EarlyExit::Help { long: name != "h" });
            }
            ArgAction::Version => return Err(EarlyExit::Version { long: name != "V" }),
            _ => {}
        }

        let value = match (Values::of(arg), inline) {
            (Values::None, None) => None,
            (Values::OptionalInline, None) => {
                check_next(argument, &spelling, arg, rest)?;
                None
            }
            (Values::None, Some(_)) => {
                let location = argument.location.clone();
                return Err(UsageError::UnexpectedValue { location, option: spelling }.into());
            }
            (Values::Assignment, inline) => {
                let mut value = match inline {
                    Some(inline) => inline.to_vec(),
                    None => next_value(argument, &spelling, arg, rest)?,
                };
                if !value.contains(&b'=') {
                    value.push(b'=');
                    value.extend(next_value(argument, &spelling, arg, rest)?);
                }
                Some(value)
            }
            (_, Some(inline)) => Some(inline.to_vec()),
            (Values::One, None) => {
                self.check_value(argument, &spelling, rest)?;
                Some(next_value(argument, &spelling, arg, rest)?)
            }
            (Values::OptionalAddress, None) => {
                let next = rest.as_slice().first().and_then(|next| next.text.to_str());
                match next.is_some_and(|next| value::address(next).is_ok()) {
                    true => rest.next().map(|next| next.text.clone().into_vec()),
                    false => None,
                }
            }
        };

        let long = arg.get_long().expect("every option of a job has a long name");
        let mut canonical = OsString::from(format!("--{long}"));
        if let Some(value) = value {
            canonical.push("=");
            canonical.push(OsString::from_vec(value));
        }
        let is_job_option =
            self.program_options.get_arguments().all(|option| option.get_id() != arg.get_id());
        let (location, id) = (argument.location.clone(), arg.get_id().to_string());
        Ok(ParsedOption { location, spelling, canonical, id, is_job_option })
    }

    /// Refuses an option in the place of a value: the value is missing.
    fn check_value(&self, option: &Argument, spelling: &str, rest: &Rest<'_>) -> Result<(), UsageError> {
        let next = rest.as_slice().first().filter(|next| next.text.as_bytes().starts_with(b"-"));
        match next.map(parts) {
            Some((name, found, _)) if self.find(&name).is_some() => Err(UsageError::OptionAsValue {
                location: option.location.clone(),
                option: spelling.to_owned(),
                found,
            }),
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<&Arg> {
        self.command.get_arguments().find(|arg| {
            arg.get_short().is_some_and(|short| name.chars().eq([short]))
                || arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        })
    }

    /// Returns a remedy for an unknown option.
    fn hint(&self, name: &str) -> String {
        // As -N2 of srun.
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Some(Meaning::Refused(hint)) = foreign::meaning(letters) {
            return (*hint).to_owned();
        }
        let names = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
        let names = names.flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default());
        match similar::nearest(name, names) {
            Some(similar) => format!("a similar option exists: --{similar}"),
            None => "write -- before a program whose name starts with a dash".to_owned(),
        }
    }

    /// Splits `n4` into a one-letter option that takes a value, and a number.
    fn split_attached<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let (short, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let arg = self.find(short)?;
        (arg.get_action().takes_values() && rest.chars().all(|c| c.is_ascii_digit())).then_some((short, rest))
    }
}

/// Splits an option into its name without dashes, its spelling, and the value after `=`.
fn parts(argument: &Argument) -> (String, String, Option<&[u8]>) {
    let bytes = argument.text.as_bytes();
    let end = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
    let spelling = escaped(OsStr::from_bytes(&bytes[..end]));
    (spelling.trim_start_matches('-').to_owned(), spelling, bytes.get(end + 1..))
}

/// Note on an option that was replaced.
fn read_as(spelling: &str, words: &[OsString]) -> String {
    match words {
        [] => format!("{spelling} has no effect here"),
        _ => {
            let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
            format!("{spelling} is read as {}", words.join(" "))
        }
    }
}

/// Refuses a next argument with the extension of the files that an option names after `=`: it would be the program.
fn check_next(option: &Argument, spelling: &str, arg: &Arg, rest: &Rest<'_>) -> Result<(), UsageError> {
    let extension = match arg.get_id().as_str() {
        "json" => ".json",
        _ => ".wasm",
    };
    match rest.as_slice().first() {
        Some(next) if next.text.as_bytes().ends_with(extension.as_bytes()) => {
            Err(UsageError::DetachedValue {
                location: option.location.clone(),
                option: spelling.to_owned(),
                value: escaped(&next.text),
            })
        }
        _ => Ok(()),
    }
}

/// Takes the next argument as the value of an option.
fn next_value(
    option: &Argument,
    spelling: &str,
    arg: &Arg,
    rest: &mut Rest<'_>,
) -> Result<Vec<u8>, UsageError> {
    let placeholder = || arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let next = rest.next().map(|next| next.text.clone().into_vec());
    next.ok_or_else(|| UsageError::MissingValue {
        location: option.location.clone(),
        option: spelling.to_owned(),
        placeholder: placeholder().unwrap_or_default(),
    })
}
