//! Argument scanner for mpiexec's syntax.
//!
//! mpiexec differs from the GNU conventions in four ways: long options with one dash, `-env NAME VALUE`, programs
//! separated by `:`, and no options after the name of a program. The scanner rewrites each option in clap's spelling.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Command};

use super::argument::{Argument, Location, ParsedOption, escaped};
use super::error::UsageError;
use super::{foreign, similar};
use crate::value;

/// Options and command of one program.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Location of the program's name, or the place where it is missing.
    pub(super) location: Location,
    pub(super) options: Vec<ParsedOption>,
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
    Version,
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
            "sandbox" => Values::OptionalInline,
            _ => Values::One,
        }
    }
}

/// Scanner for the options of one command.
pub(super) struct Scanner {
    command: Command,
    job_options: Command,
}

impl Scanner {
    /// `job_options` holds the options that apply to the whole job. They may precede the first program only.
    pub(super) fn new(mut command: Command, job_options: Command) -> Scanner {
        command.build();
        Scanner { command, job_options }
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

    /// Parses options up to and including the name of a program.
    fn options(
        &self,
        arguments: &mut std::slice::Iter<'_, Argument>,
        end: &Location,
    ) -> Result<Segment, EarlyExit> {
        let mut segment = Segment { location: end.clone(), options: Vec::new(), command: Vec::new() };
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
            segment.options.push(self.option(argument, arguments)?);
        }
        segment.location = end.clone();
        Ok(segment)
    }

    /// Parses one option and its value.
    fn option(
        &self,
        argument: &Argument,
        rest: &mut std::slice::Iter<'_, Argument>,
    ) -> Result<ParsedOption, EarlyExit> {
        let bytes = argument.text.as_bytes();
        let name_end = bytes.iter().position(|&byte| byte == b'=').unwrap_or(bytes.len());
        let spelling = escaped(OsStr::from_bytes(&bytes[..name_end]));
        let name = spelling.trim_start_matches('-');
        let inline = bytes.get(name_end + 1..);
        let Some(arg) = self.find(name) else { return Err(self.unknown(argument, name, &spelling).into()) };
        match arg.get_action() {
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong => {
                return Err(EarlyExit::Help { long: name != "h" });
            }
            ArgAction::Version => return Err(EarlyExit::Version),
            _ => {}
        }

        let value = match (Values::of(arg), inline) {
            (Values::None | Values::OptionalInline, None) => None,
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
            (Values::One, None) => Some(next_value(argument, &spelling, arg, rest)?),
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
        let is_job_option = self.job_options.get_arguments().any(|option| option.get_id() == arg.get_id());
        let (location, id) = (argument.location.clone(), arg.get_id().to_string());
        Ok(ParsedOption { location, spelling, canonical, id, is_job_option })
    }

    fn find(&self, name: &str) -> Option<&Arg> {
        self.command.get_arguments().find(|arg| {
            arg.get_short().is_some_and(|short| name.chars().eq([short]))
                || arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        })
    }

    fn unknown(&self, argument: &Argument, name: &str, spelling: &str) -> UsageError {
        let names = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
        let names = names.flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default());
        let hint = match (foreign::equivalent(name), self.glued(name), similar::nearest(name, names)) {
            (Some(equivalent), _, _) => equivalent.to_owned(),
            (_, Some((short, rest)), _) => format!("write -{short} {rest}"),
            (_, _, Some(similar)) => format!("a similar option exists: --{similar}"),
            _ => "write -- before a program whose name starts with a dash".to_owned(),
        };
        UsageError::UnknownOption { location: argument.location.clone(), option: spelling.to_owned(), hint }
    }

    /// Splits `n4` into a one-letter option that takes a value, and a number.
    fn glued<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let (short, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let arg = self.find(short)?;
        (arg.get_action().takes_values() && rest.chars().all(|c| c.is_ascii_digit())).then_some((short, rest))
    }
}

/// Takes the next argument as the value of an option.
fn next_value(
    option: &Argument,
    spelling: &str,
    arg: &Arg,
    rest: &mut std::slice::Iter<'_, Argument>,
) -> Result<Vec<u8>, UsageError> {
    let placeholder = || arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let next = rest.next().map(|next| next.text.clone().into_vec());
    next.ok_or_else(|| UsageError::MissingValue {
        location: option.location.clone(),
        option: spelling.to_owned(),
        placeholder: placeholder().unwrap_or_default(),
    })
}
