//! Results of checks, and their text.

use std::fmt::Write;

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, with a restriction that some jobs meet.
    Note,
    /// Jobs fail.
    Problem,
}

impl Level {
    /// Its word in the output.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Weight.
    pub level: Level,
    /// Subject, one to three words.
    pub topic: &'static str,
    /// Result in one line.
    pub text: String,
    /// Remedy in one line. Always present at [`Level::Problem`].
    pub hint: Option<String>,
}

impl Finding {
    pub(crate) fn ok(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, topic, text: text.into(), hint: None }
    }

    pub(crate) fn note(topic: &'static str, text: impl Into<String>, hint: Option<&str>) -> Finding {
        Finding { level: Level::Note, topic, text: text.into(), hint: hint.map(str::to_owned) }
    }

    pub(crate) fn problem(topic: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, topic, text: text.into(), hint: Some(hint.into()) }
    }
}

/// Returns the report: a line for each finding, a line for each remedy, and a summary.
pub fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or_default();
    for finding in findings {
        let level = finding.level.name();
        let _ = writeln!(text, "{level:7}  {:width$}  {}", finding.topic, finding.text);
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "{:7}  {:width$}  hint: {hint}", "", "");
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let number = |count: usize, noun: &str| match count {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let _ = writeln!(
        text,
        "{}, {}",
        number(count(Level::Problem), "problem"),
        number(count(Level::Note), "note")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_aligned_and_counted() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::note("longer", "small", Some("enlarge it")),
            Finding::problem("b", "missing", "make it"),
        ];
        let expected = "ok       a       fine\n\
                        note     longer  small\n                 hint: enlarge it\n\
                        problem  b       missing\n                 hint: make it\n\
                        1 problem, 1 note\n";
        assert_eq!(render(&findings), expected);
        assert_eq!(render(&[]), "no problems, no notes\n");
    }
}
