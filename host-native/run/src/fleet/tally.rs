//! Exit codes of the tasks of a job array.

use std::fmt::Write as _;

/// Most tasks that are named.
const NAMED_MAX: usize = 5;

/// How tasks have ended, in constant size.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first tasks that failed, with their codes.
    first: Vec<(u32, u8)>,
    /// Number of all tasks that failed.
    failed: u32,
}

impl Tally {
    /// Counts a task that has ended with a code.
    pub(super) fn add(&mut self, task: u32, code: u8) {
        if code == 0 {
            return;
        }
        self.failed += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push((task, code));
        }
    }

    /// A line about an array of `count` tasks, of which `left` have not been started. None if all succeeded.
    pub(super) fn line(&self, count: u32, left: u32) -> Option<String> {
        let mut line = String::new();
        if self.failed > 0 {
            let _ = write!(line, "{} of {count} tasks failed: ", self.failed);
            let named = self.first.iter().map(|(task, code)| format!("task {task} with code {code}"));
            line += &named.collect::<Vec<_>>().join(", ");
            let others = self.failed - self.first.len() as u32;
            if others > 0 {
                let _ = write!(line, " and {others} others");
            }
        }
        if left > 0 {
            let and = if line.is_empty() { "" } else { "; " };
            let _ = write!(line, "{and}{left} of {count} tasks were not started");
        }
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tasks_that_failed_are_named() {
        let mut tally = Tally::default();
        (0..10).for_each(|task| tally.add(task, 0));
        assert_eq!(tally.line(10, 0), None);
        assert_eq!(tally.line(20, 10).unwrap(), "10 of 20 tasks were not started");
        tally.add(17, 3);
        assert_eq!(tally.line(20, 0).unwrap(), "1 of 20 tasks failed: task 17 with code 3");
        (20..26).for_each(|task| tally.add(task, 1));
        assert_eq!(
            tally.line(40, 2).unwrap(),
            "7 of 40 tasks failed: task 17 with code 3, task 20 with code 1, task 21 with code 1, task 22 with code 1, task 23 \
             with code 1 and 2 others; 2 of 40 tasks were not started"
        );
    }
}
