//! Errors in the command line of a job.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::argument::Location;

/// Error in the command line of a job. Options are spelled as the user typed them.
#[derive(Debug, Error)]
pub enum UsageError {
    /// Option that does not exist.
    #[error("{location}: unknown option {option}")]
    UnknownOption {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// Correct spelling or equivalent.
        hint: String,
    },
    /// End of the command line instead of an option's value.
    #[error("{location}: {option} needs a value: {placeholder}")]
    MissingValue {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// Name of the value in the help.
        placeholder: String,
    },
    /// Option in the place of another one's value.
    #[error("{location}: {option} needs a value, and '{found}' is an option")]
    OptionAsValue {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// The option in the place of the value.
        found: String,
    },
    /// Switch with a value after `=`.
    #[error("{location}: {option} takes no value")]
    UnexpectedValue {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
    },
    /// Value behind an option that takes one after `=` only.
    #[error("{location}: {option} takes its file after '=', and '{value}' would be the program")]
    DetachedValue {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// The value.
        value: String,
    },
    /// Option without another one that it belongs to: `--spare` and `--offload-secret`.
    #[error("{location}: {option} is of no use without {needed}")]
    Alone {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// The options that it belongs to.
        needed: &'static str,
    },
    /// Invalid value of an option.
    #[error("{location}: invalid value '{}' for {option}: {expected}", beginning(value))]
    InvalidValue {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// Valid values.
        expected: String,
    },
    /// Invalid value of a variable that sets an option.
    #[error("invalid value '{value}' of the variable {variable}: expected {expected}")]
    InvalidVariable {
        /// The variable.
        variable: &'static str,
        /// The value.
        value: String,
        /// Valid values.
        expected: &'static str,
    },
    /// Two options that exclude each other.
    #[error("{location}: {option} cannot be used with {other}: {why}")]
    Conflict {
        /// Location of the later option.
        location: Location,
        /// The later option.
        option: String,
        /// The earlier option.
        other: String,
        /// Reason for the conflict.
        why: &'static str,
    },
    /// Option of the whole job with another value than at an earlier program.
    #[error("{location}: {option} differs from {other} of an earlier program, and applies to the whole job")]
    Differs {
        /// Location of the later option.
        location: Location,
        /// The later option and its value.
        option: String,
        /// The earlier option and its value.
        other: String,
    },
    /// `--configfile` after the first program.
    #[error("{location}: {option} must precede the first program")]
    Misplaced {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
    },
    /// Option of `hydrant run` that `hydrant offload` does not have.
    #[error("{location}: {option} does not apply to 'hydrant offload': {why}")]
    NotOffloadable {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// Reason.
        why: &'static str,
    },
    /// Option of a fleet's hosts or server, for a job in a fleet.
    #[error("{location}: {option} is an option of the fleet, and --on names one that runs")]
    OfFleet {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
    },
    /// Option that neither a fleet nor a job in one can have.
    #[error("{location}: {option} does not apply to fleets: {why}")]
    NotInFleet {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// Reason.
        why: &'static str,
    },
    /// Slots or a user of a host, for a job in a fleet.
    #[error(
        "{location}: {option} of a job in a fleet takes names of hosts: the fleet has the slots and the user of {host}"
    )]
    HostOfFleet {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// The host.
        host: String,
    },
    /// Option of a job, for `hydrant up`.
    #[error("{location}: {option} is an option of a job: a fleet starts none")]
    OfJob {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
    },
    /// Program behind `hydrant up`.
    #[error("{location}: 'hydrant up' starts no program")]
    ProgramOfFleet {
        /// Location of the program.
        location: Location,
    },
    /// `offload` without `--target`.
    #[error("missing option --target HOST[:PORT]")]
    MissingTarget,
    /// Options without a program.
    #[error("{location}: missing program name")]
    MissingProgram {
        /// Place where the program is missing.
        location: Location,
        /// The last option, and its value, which may have been meant as the program.
        taken: Option<(String, String)>,
    },
    /// Neither a program nor a configuration file.
    #[error("missing program name")]
    Empty {
        /// The command as it was called.
        called: String,
        /// The last option, and its value, which may have been meant as the program.
        taken: Option<(String, String)>,
    },
    /// `--configfile` together with a program or its options.
    #[error("{location}: '{argument}' cannot be used with -configfile")]
    WithConfigFile {
        /// Location of the argument.
        location: Location,
        /// The argument.
        argument: String,
    },
    /// `--configfile` in a configuration file.
    #[error("{location}: -configfile cannot be used in a configuration file")]
    NestedConfigFile {
        /// Location of the option.
        location: Location,
    },
    /// Configuration file that cannot be read.
    #[error("cannot read configuration file {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Reason given by the operating system.
        #[source]
        error: io::Error,
    },
    /// Configuration file without a program.
    #[error("no program in configuration file {}", .0.display())]
    EmptyFile(PathBuf),
    /// Quote without its counterpart.
    #[error("{location}: unclosed quote {quote}")]
    OpenQuote {
        /// Location of the quote.
        location: Location,
        /// The quotation mark.
        quote: char,
    },
    /// NUL byte in a configuration file.
    #[error("{location}: NUL byte; an argument cannot contain one")]
    Nul {
        /// Location of the byte.
        location: Location,
    },
    /// Process set of programs that are not adjacent.
    #[error("{location}: {option} '{name}': the programs of a process set must be adjacent")]
    ScatteredPset {
        /// Location of the option.
        location: Location,
        /// The option.
        option: String,
        /// Name of the set.
        name: String,
    },
    /// Number of ranks that exceeds 32 bits.
    #[error("{location}: more than {} ranks in total", u32::MAX)]
    TooManyRanks {
        /// The program at which the limit is exceeded.
        location: Location,
    },
}

impl UsageError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            UsageError::UnknownOption { hint, .. } => hint.clone(),
            UsageError::OptionAsValue { option, .. } => format!("write the value behind {option}"),
            UsageError::UnexpectedValue { option, .. } => format!("write {option}, without '='"),
            UsageError::DetachedValue { option, value, .. } => {
                format!("write {option}={value}, or -- before a program of that name")
            }
            UsageError::Alone { needed, .. } => format!("add {needed}, or remove the option"),
            UsageError::Differs { option, .. }
                if option.starts_with("-hosts") || option.starts_with("--hosts") =>
            {
                "write -host for the hosts of each program".to_owned()
            }
            UsageError::Differs { option, .. } if option.trim_start_matches('-').starts_with("genv") => {
                format!("write -{} for one program", &option.trim_start_matches('-')[1..])
            }
            UsageError::Differs { .. } => "write the option once".to_owned(),
            UsageError::Conflict { .. } => "remove one of the two options".to_owned(),
            UsageError::NotOffloadable { .. } | UsageError::NotInFleet { .. } => {
                "remove the option".to_owned()
            }
            UsageError::OfFleet { .. } => "give it to 'hydrant up'".to_owned(),
            UsageError::HostOfFleet { option, host, .. } => {
                format!("write '{option} {host}', and the number of ranks with -n")
            }
            UsageError::OfJob { .. } => "give it to 'hydrant run --on NAME'".to_owned(),
            UsageError::ProgramOfFleet { .. } => "write 'hydrant run --on NAME PROGRAM'".to_owned(),
            UsageError::MissingTarget => {
                "for example: hydrant offload --target 192.0.2.7 -n 4 ./a.out".to_owned()
            }
            UsageError::Empty { taken: Some((option, value)), .. }
            | UsageError::MissingProgram { taken: Some((option, value)), .. } => {
                format!("'{value}' is the value of {option}; write the program behind it")
            }
            UsageError::Empty { called, .. } => format!("for example: {called} -n 4 ./a.out"),
            UsageError::WithConfigFile { argument, .. } => {
                format!("move '{argument}' to the configuration file")
            }
            UsageError::EmptyFile(_) => "write one program per line, for example: -n 4 ./a.out".to_owned(),
            UsageError::ScatteredPset { .. } => {
                "a process set is a contiguous range of ranks; write its programs next to each other"
                    .to_owned()
            }
            _ => return None,
        })
    }
}

/// The beginning of a text that is long.
fn beginning(text: &str) -> String {
    const MAX: usize = 120;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut() {
        assert_eq!(beginning(&"h".repeat(120)), "h".repeat(120));
        assert_eq!(beginning(&"ä".repeat(121)), "ä".repeat(120) + "...");
    }
}
