//! Texts before the lines of ranks: rank, host and time.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::pattern::{NamedJob, expand};

/// Text before each line of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Text that depends on the rank.
    pub lines: LinePrefix,
    /// The time of the line, in front of the text.
    pub timestamps: bool,
}

/// Text before each line of output that depends on the rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinePrefix {
    /// None.
    #[default]
    None,
    /// `[rank] `, of spawned jobs `[job:rank] `, in arrays `[task.rank] `.
    Rank,
    /// `rank> ` before standard output and `rank(err)> ` before standard error, as MPICH does it with
    /// `MPIEXEC_PREFIX_DEFAULT`. In arrays `task.rank> `.
    Mpiexec,
    /// Text with `%r` for the rank, `%g` for the number of the job, `%I` for that of the task, `%h` for the host and `%%` for a
    /// percent sign.
    Pattern(String),
}

/// Texts before lines, of all ranks.
#[derive(Debug, Default)]
pub struct Labels(Prefix);

impl Labels {
    /// Creates the texts of this form.
    pub fn new(prefix: Prefix) -> Labels {
        Labels(prefix)
    }

    /// Returns whether lines have a text in front.
    pub fn are_used(&self) -> bool {
        self.0.timestamps || self.0.lines != LinePrefix::None
    }

    /// Returns whether each line has its own time in front.
    pub fn has_timestamps(&self) -> bool {
        self.0.timestamps
    }

    /// Returns the text for a stream of a rank, without the time.
    pub fn text<'h>(&self, job: NamedJob, rank: u32, host: impl FnOnce() -> &'h str, stderr: bool) -> String {
        let task = || job.task.map_or_else(String::new, |task| format!("{task}."));
        match &self.0.lines {
            LinePrefix::None => String::new(),
            LinePrefix::Rank if job.ordinal == 0 => format!("[{}{rank}] ", task()),
            LinePrefix::Rank => format!("[{}{}:{rank}] ", task(), job.ordinal),
            LinePrefix::Mpiexec if stderr => format!("{}{rank}(err)> ", task()),
            LinePrefix::Mpiexec => format!("{}{rank}> ", task()),
            LinePrefix::Pattern(pattern) => {
                let text = expand(pattern.as_ref(), (job, rank), 0, host(), || 0).ok();
                text.and_then(|text| text.into_string().ok()).unwrap_or_else(|| pattern.clone())
            }
        }
    }
}

/// Returns a time in UTC, with milliseconds and a blank behind it: `2026-01-31T08:05:00.250Z `.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z ")
}

/// Returns year, month and day of a day since 1970. Years are counted from March, so that the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, in_month)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn labels_have_the_form_of_the_option() {
        let of = |lines, job, stderr| {
            Labels::new(Prefix { lines, timestamps: false }).text(job, 3, || "node7", stderr)
        };
        let text = |lines, ordinal, stderr| of(lines, NamedJob { ordinal, task: None }, stderr);
        let of_task = |lines, ordinal, stderr| of(lines, NamedJob { ordinal, task: Some(8) }, stderr);
        assert_eq!(text(LinePrefix::Rank, 0, true), "[3] ");
        assert_eq!(text(LinePrefix::Rank, 2, false), "[2:3] ");
        assert_eq!(text(LinePrefix::Mpiexec, 0, false), "3> ");
        assert_eq!(text(LinePrefix::Mpiexec, 0, true), "3(err)> ");
        assert_eq!(text(LinePrefix::Pattern("%h/%g.%r%%: ".to_owned()), 1, false), "node7/1.3%: ");
        assert_eq!(of_task(LinePrefix::Rank, 0, false), "[8.3] ");
        assert_eq!(of_task(LinePrefix::Rank, 2, false), "[8.2:3] ");
        assert_eq!(of_task(LinePrefix::Mpiexec, 0, true), "8.3(err)> ");
        assert_eq!(of_task(LinePrefix::Pattern("%I-%r ".to_owned()), 0, false), "8-3 ");
        assert!(!Labels::default().are_used());
    }

    #[test]
    fn times_are_dates() {
        let at = |seconds, millis: u32| timestamp(UNIX_EPOCH + Duration::new(seconds, millis * 1_000_000));
        assert_eq!(at(0, 7), "1970-01-01T00:00:00.007Z ");
        assert_eq!(at(951_868_799, 0), "2000-02-29T23:59:59.000Z ");
        assert_eq!(at(1_735_689_599, 999), "2024-12-31T23:59:59.999Z ");
        assert_eq!(at(1_740_787_200, 0), "2025-03-01T00:00:00.000Z ");
    }
}
