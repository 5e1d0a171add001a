//! Help texts of PMIx clients (`PMIX_LOG_KEY`, `PMIX_LOG_VAL`): each is printed once in a run or a job of a fleet, and later how
//! many more have come. So are notes about requests, which are not counted.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_control::protocol::SubmissionId;
use hydrant_core::trace::Stream;
use hydrant_core::wire::pmix::HelpText;
use hydrant_core::{JobId, Rank};

use super::{Engine, Head};

/// Most texts of a submission that are kept apart. Further ones are printed each time.
const TEXTS_MAX: usize = 256;
/// Most notes for the user of a submission.
const NOTES_MAX: usize = 64;
/// Milliseconds in which texts that come again are counted.
const INTERVAL: u64 = 5_000;

/// What users have been told: those of the submissions of a fleet, and that of a run or of the fleet itself.
#[derive(Debug, Default)]
pub(super) struct HelpTexts {
    of: BTreeMap<Option<SubmissionId>, Told>,
    /// Time of the next lines.
    show_at: Option<u64>,
}

/// What a user has been told.
#[derive(Debug, Default)]
struct Told {
    /// Help texts by file and topic, each with the number of those that have come since the last line about them.
    more: BTreeMap<(Vec<u8>, Vec<u8>), u32>,
    notes: BTreeSet<String>,
}

impl HelpTexts {
    /// Time of the next lines about texts that have come again.
    pub(super) fn poll_at(&self) -> Option<u64> {
        self.show_at
    }

    /// Counts a text. Returns whether it is to be printed.
    fn count(&mut self, now: u64, of: Option<SubmissionId>, text: &HelpText<'_>) -> bool {
        let name = (text.file.to_vec(), text.topic.to_vec());
        let more = &mut self.of.entry(of).or_default().more;
        if let Some(more) = more.get_mut(&name) {
            *more = more.saturating_add(1);
            self.show_at.get_or_insert(now + INTERVAL);
            return false;
        }
        if more.len() < TEXTS_MAX {
            more.insert(name, 0);
        }
        true
    }

    /// Takes a note. Returns whether it is to be printed.
    fn note(&mut self, of: Option<SubmissionId>, line: &str) -> bool {
        let notes = &mut self.of.entry(of).or_default().notes;
        notes.len() < NOTES_MAX && notes.insert(line.to_owned())
    }

    /// Takes the lines about texts that have come again.
    fn take_lines(&mut self) -> Vec<(Option<SubmissionId>, String)> {
        self.show_at = None;
        let of = self.of.iter_mut();
        of.flat_map(|(&of, told)| told.take_lines().into_iter().map(move |line| (of, line))).collect()
    }

    /// Takes the last lines for a submission that is over.
    fn forget(&mut self, submission: SubmissionId) -> Vec<String> {
        self.of.remove(&Some(submission)).map_or_else(Vec::new, |mut told| told.take_lines())
    }
}

impl Told {
    fn take_lines(&mut self) -> Vec<String> {
        let again = self.more.iter_mut().filter(|(_, more)| **more > 0);
        again
            .map(|((file, topic), more)| {
                let count = std::mem::take(more);
                let processes = if count == 1 { "process has" } else { "processes have" };
                let (file, topic) = (file.escape_ascii(), topic.escape_ascii());
                format!("{count} more {processes} sent help message {file} / {topic}")
            })
            .collect()
    }
}

impl Head {
    /// The submission that a job is of. None in a run, and for the job of a tool.
    fn submission_of(&self, job: JobId) -> Option<SubmissionId> {
        self.control.jobs().get(job)?.submission
    }

    /// Prints a help text as output of its process, unless it has been printed.
    pub(super) fn take_help_text(
        &mut self,
        engine: &mut Engine<'_>,
        (job, rank): (JobId, Rank),
        text: &HelpText<'_>,
    ) {
        let of = self.submission_of(job);
        if !self.help_texts.count(engine.now(), of, text) {
            return;
        }
        if engine.is_tool(job) {
            String::from_utf8_lossy(text.text).lines().for_each(|line| engine.sinks.print(line));
        } else {
            let stream = if text.to_stdout { Stream::Stdout } else { Stream::Stderr };
            engine.log_for(job, rank, stream, text.text);
        }
        engine.flush();
    }

    /// Prints a line about a request of a job, unless it has been printed or many others have.
    pub(super) fn print_once(&mut self, engine: &mut Engine<'_>, job: JobId, line: String) {
        let of = self.submission_of(job);
        if self.help_texts.note(of, &line) {
            self.tell_user(engine, of, line);
        }
    }

    /// Says how many help texts have come again, if it is time or the run is over.
    pub(super) fn show_help_texts(&mut self, engine: &mut Engine<'_>, is_over: bool) {
        let now = engine.now();
        if is_over || self.help_texts.show_at.is_some_and(|at| at <= now) {
            for (of, line) in self.help_texts.take_lines() {
                self.tell_user(engine, of, line);
            }
            engine.flush();
        }
    }

    /// Says how many help texts of a submission that is over have come again.
    pub(super) fn forget_help_texts(&mut self, engine: &mut Engine<'_>, submission: SubmissionId) {
        for line in self.help_texts.forget(submission) {
            self.tell_user(engine, Some(submission), line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(topic: &[u8]) -> HelpText<'_> {
        HelpText { file: b"a.txt", topic, text: b"text", to_stdout: false }
    }

    #[test]
    fn a_text_is_printed_once_and_then_counted() {
        let mut texts = HelpTexts::default();
        let (one, two) = (&text(b"one"), &text(b"t\\wo"));
        assert!(texts.count(1, None, one) && texts.count(1, None, two));
        assert_eq!(texts.poll_at(), None);
        assert!(!texts.count(2, None, one) && !texts.count(3, None, one) && !texts.count(4, None, two));
        assert_eq!(texts.poll_at(), Some(2 + INTERVAL));
        let lines = [
            (None, "2 more processes have sent help message a.txt / one".to_owned()),
            (None, "1 more process has sent help message a.txt / t\\\\wo".to_owned()),
        ];
        assert_eq!(texts.take_lines(), lines);
        assert_eq!((texts.take_lines(), texts.poll_at()), (Vec::new(), None));
        for number in 0..=TEXTS_MAX as u32 {
            let number = number.to_le_bytes();
            assert!(texts.count(5, None, &text(&number)));
        }
        let last = (TEXTS_MAX as u32).to_le_bytes();
        assert!(texts.count(5, None, &text(&last)), "the table is full");
        assert_eq!(texts.of[&None].more.len(), TEXTS_MAX);
    }
    #[test]
    fn each_user_of_a_fleet_is_told() {
        let mut texts = HelpTexts::default();
        let [a, b] = [1, 2].map(|number| Some(SubmissionId(number)));
        let one = &text(b"one");
        for of in [None, a, b] {
            assert!(texts.count(0, of, one) && texts.note(of, "note"));
            assert!(!texts.note(of, "note"));
        }
        assert!(!texts.count(0, a, one) && !texts.count(0, b, one));
        let line = "1 more process has sent help message a.txt / one".to_owned();
        assert_eq!(texts.forget(SubmissionId(1)), [&*line]);
        assert_eq!(texts.take_lines(), [(b, line)]);
        // Another one has its number.
        assert!(texts.count(0, a, one) && texts.note(a, "note"));
    }
}
