//! Job arrays: the tasks that one command submits to a fleet.

use std::str::FromStr;

/// Highest number of a task, that of Slurm's largest `MaxArraySize`.
const TASK_MAX: u32 = 4_000_000;
/// Most tasks at a time: a fleet has 1,024 connections for all its clients.
const AT_ONCE_MAX: u32 = 512;
/// Why a list of tasks is refused.
const EXPECTED: &str =
    "expected numbers and ranges, as in 0-9999, 1,4,7 or 0-15:4, and how many run at a time behind %";

/// Tasks of a job array: `0-15:4,20%8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobArray {
    /// In the order in which they start. No number is in two of them.
    ranges: Vec<TaskRange>,
    /// So many run at a time.
    at_once: u32,
}

/// Each `step`-th number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskRange {
    first: u32,
    last: u32,
    step: u32,
}

impl JobArray {
    /// Numbers of the tasks, in the order in which they start.
    pub fn tasks(&self) -> impl Iterator<Item = u32> + use<> {
        self.ranges.clone().into_iter().flat_map(TaskRange::numbers)
    }

    /// Number of tasks.
    pub fn count(&self) -> u32 {
        self.ranges.iter().map(|range| (range.last - range.first) / range.step + 1).sum()
    }

    /// Lowest and highest number of a task.
    pub fn bounds(&self) -> (u32, u32) {
        let (first, last) =
            (self.ranges.iter().map(|range| range.first), self.ranges.iter().map(|range| range.last));
        (first.min().unwrap_or(0), last.max().unwrap_or(0))
    }

    /// So many tasks run at a time.
    pub fn at_once(&self) -> u32 {
        self.at_once
    }

    /// Returns the first number that is in two ranges.
    fn repeated(&self) -> Option<u32> {
        let mut seen = vec![false; self.bounds().1 as usize + 1];
        self.tasks().find(|&task| std::mem::replace(&mut seen[task as usize], true))
    }
}

impl TaskRange {
    fn numbers(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(self.step as usize)
    }
}

impl FromStr for JobArray {
    type Err = String;

    fn from_str(text: &str) -> Result<JobArray, String> {
        let (list, at_once) = match text.split_once('%') {
            None => (text, AT_ONCE_MAX),
            Some((list, at_once)) => match number(at_once) {
                Some(at_once @ 1..=AT_ONCE_MAX) => (list, at_once),
                _ => return Err(format!("expected a number of tasks from 1 to {AT_ONCE_MAX} behind %")),
            },
        };
        let ranges = list.split(',').map(str::parse).collect::<Result<Vec<TaskRange>, String>>()?;
        let array = JobArray { ranges, at_once };
        match array.repeated().filter(|_| array.ranges.len() > 1) {
            Some(task) => Err(format!("task {task} is in it twice")),
            None => Ok(array),
        }
    }
}

impl FromStr for TaskRange {
    type Err = String;

    fn from_str(text: &str) -> Result<TaskRange, String> {
        let (bounds, step) = text.split_once(':').map_or((text, None), |(bounds, step)| (bounds, Some(step)));
        let (first, last) = match bounds.split_once('-') {
            Some((first, last)) => (number(first), number(last)),
            None if step.is_none() => (number(bounds), number(bounds)),
            None => return Err(EXPECTED.to_owned()),
        };
        let step = step.map_or(Some(1), number).filter(|&step| step > 0);
        let (Some(first), Some(last), Some(step)) = (first, last, step) else {
            return Err(EXPECTED.to_owned());
        };
        if last > TASK_MAX {
            return Err(format!("the numbers of tasks are 0 to {TASK_MAX}"));
        }
        if first > last {
            return Err(format!("the range {text} is empty"));
        }
        // The last number is that of a task.
        Ok(TaskRange { first, last: last - (last - first) % step, step })
    }
}

/// Parses digits. A number that is too large for any use is the largest one.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(text: &str) -> JobArray {
        text.parse().unwrap()
    }

    #[test]
    fn tasks_have_the_order_of_the_list() {
        let list = array("20,0-15:4,3%2");
        assert_eq!(list.tasks().collect::<Vec<_>>(), [20, 0, 4, 8, 12, 3]);
        assert_eq!((list.count(), list.bounds(), list.at_once()), (6, (0, 20), 2));
        assert_eq!((array("0-10:4").bounds(), array("7").bounds()), ((0, 8), (7, 7)));
        assert_eq!((array("0-99999").count(), array("0").at_once()), (100_000, AT_ONCE_MAX));
        assert_eq!(array("0-10:2,1-11:2").count(), 12);
        assert_eq!(array("0-4000000").count(), TASK_MAX + 1);
    }

    #[test]
    fn what_is_no_list_of_tasks_is_refused() {
        let refused = |text: &str| text.parse::<JobArray>().unwrap_err();
        for text in
            ["", ",", "1,", "a", "-1", "1-", "1-2-3", "0-4:0", "0-4:", "4:2", "+1", " 1", "1..3", "0x1"]
        {
            assert_eq!(refused(text), EXPECTED, "{text}");
        }
        for text in ["1%", "1%0", "1%513", "1%a", "1%2%3", "%"] {
            assert!(refused(text).contains("behind %"), "{text}");
        }
        assert_eq!(refused("3-1"), "the range 3-1 is empty");
        assert_eq!(refused("0-4000001"), "the numbers of tasks are 0 to 4000000");
        assert_eq!(refused("99999999999"), "the numbers of tasks are 0 to 4000000");
        assert_eq!(refused("1-5,9,3"), "task 3 is in it twice");
        assert_eq!(refused("0-10:2,1-10:3"), "task 4 is in it twice");
    }
}
