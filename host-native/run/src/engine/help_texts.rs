//! Help texts of PMIx clients (`PMIX_LOG_KEY`, `PMIX_LOG_VAL`): each is printed once in a run, and later how many more have come.

use std::collections::BTreeMap;

use hydrant_core::trace::Stream;
use hydrant_core::wire::pmix::HelpText;
use hydrant_core::{JobId, Rank};

use super::{Engine, Head};

/// Most texts that are kept apart. Further ones are printed each time.
const TEXTS_MAX: usize = 256;
/// Milliseconds in which texts that come again are counted.
const INTERVAL: u64 = 5_000;

/// Help texts that have been printed.
#[derive(Debug, Default)]
pub(super) struct HelpTexts {
    /// By file and topic, the number of those that have come since the last line about them.
    more: BTreeMap<(Vec<u8>, Vec<u8>), u32>,
    /// Time of the next lines.
    show_at: Option<u64>,
}

impl HelpTexts {
    /// Time of the next lines about texts that have come again.
    pub(super) fn poll_at(&self) -> Option<u64> {
        self.show_at
    }

    /// Counts a text. Returns whether it is to be printed.
    fn count(&mut self, now: u64, text: &HelpText<'_>) -> bool {
        let name = (text.file.to_vec(), text.topic.to_vec());
        if let Some(more) = self.more.get_mut(&name) {
            *more = more.saturating_add(1);
            self.show_at.get_or_insert(now + INTERVAL);
            return false;
        }
        if self.more.len() < TEXTS_MAX {
            self.more.insert(name, 0);
        }
        true
    }

    /// Takes the lines about texts that have come again.
    fn take_lines(&mut self) -> Vec<String> {
        self.show_at = None;
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

impl Head<'_> {
    /// Prints a help text as output of its process, unless it has been printed.
    pub(super) fn take_help_text(
        &mut self,
        engine: &mut Engine<'_>,
        (job, rank): (JobId, Rank),
        text: &HelpText<'_>,
    ) {
        if !self.help_texts.count(engine.now(), text) {
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

    /// Says how many help texts have come again, if it is time or the run is over.
    pub(super) fn show_help_texts(&mut self, engine: &mut Engine<'_>, is_over: bool) {
        let now = engine.now();
        if is_over || self.help_texts.show_at.is_some_and(|at| at <= now) {
            let lines = self.help_texts.take_lines();
            lines.iter().for_each(|line| engine.sinks.print(line));
            engine.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_printed_once_and_then_counted() {
        fn text(topic: &[u8]) -> HelpText<'_> {
            HelpText { file: b"a.txt", topic, text: b"text", to_stdout: false }
        }
        let mut texts = HelpTexts::default();
        let (one, two) = (&text(b"one"), &text(b"t\\wo"));
        assert!(texts.count(1, one) && texts.count(1, two));
        assert_eq!(texts.poll_at(), None);
        assert!(!texts.count(2, one) && !texts.count(3, one) && !texts.count(4, two));
        assert_eq!(texts.poll_at(), Some(2 + INTERVAL));
        let lines = [
            "2 more processes have sent help message a.txt / one",
            "1 more process has sent help message a.txt / t\\\\wo",
        ];
        assert_eq!(texts.take_lines(), lines);
        assert_eq!((texts.take_lines(), texts.poll_at()), (Vec::new(), None));
        for number in 0..=TEXTS_MAX as u32 {
            let number = number.to_le_bytes();
            assert!(texts.count(5, &text(&number)));
        }
        let last = (TEXTS_MAX as u32).to_le_bytes();
        assert!(texts.count(5, &text(&last)), "the table is full");
        assert_eq!(texts.more.len(), TEXTS_MAX);
    }
}
