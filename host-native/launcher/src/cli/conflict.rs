//! Options that exclude each other.

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
