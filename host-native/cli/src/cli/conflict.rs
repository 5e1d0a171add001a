//! Options that exclude each other, or that belong to others.

use super::argument::ParsedOption;
use super::error::UsageError;

/// Refuses two options that exclude each other, at the location of the later one.
pub(super) fn conflict(
    options: &[ParsedOption],
    one: &str,
    other: &str,
    why: &'static str,
) -> Result<(), UsageError> {
    let last = |id: &str| options.iter().enumerate().rfind(|(_, option)| option.id == id);
    let (Some(one), Some(other)) = (last(one), last(other)) else { return Ok(()) };
    let (first, second) = if one.0 < other.0 { (one.1, other.1) } else { (other.1, one.1) };
    Err(UsageError::Conflict {
        location: second.location.clone(),
        option: second.spelling.clone(),
        other: first.spelling.clone(),
        why,
    })
}

/// Refuses an option without one of those that it belongs to, which the error calls `needed`.
pub(super) fn not_alone(
    options: &[ParsedOption],
    id: &str,
    owners: &[&str],
    needed: &'static str,
) -> Result<(), UsageError> {
    let Some(option) = options.iter().find(|option| option.id == id) else { return Ok(()) };
    if options.iter().any(|option| owners.contains(&option.id.as_str())) {
        return Ok(());
    }
    Err(UsageError::Alone { location: option.location.clone(), option: option.spelling.clone(), needed })
}
