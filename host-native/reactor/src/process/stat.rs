//! The line that the system has about a process: `/proc/PID/stat` of Linux.

use crate::sys;

/// State and counters of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Name of its program, at most 15 bytes, without control characters.
    pub name: String,
    /// State in one letter: `R` is running, `Z` has ended.
    pub state: u8,
    /// Number of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Time on processors in clock ticks, 100 a second.
    pub busy: u64,
    /// Priority. Lower numbers are served first.
    pub priority: i32,
    /// Number of threads.
    pub threads: u32,
    /// Time of its start in clock ticks since the start of the system.
    pub start: u64,
    /// Processor that it ran on last.
    pub processor: u32,
}

impl Stat {
    /// Reads the line, without the number in front if that is absent.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
        // The name is in parentheses and may hold any byte.
        let (open, close) =
            (line.iter().position(|&byte| byte == b'(')?, line.iter().rposition(|&byte| byte == b')')?);
        let name = String::from_utf8_lossy(line.get(open + 1..close)?).replace(char::is_control, "?");
        let fields: Vec<&str> =
            std::str::from_utf8(line.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
        // proc(5) numbers the fields from 1. The state is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        let natural = |number: usize| field(number)?.parse::<u64>().ok();
        let whole = |number: usize| field(number)?.parse::<i32>().ok();
        Some(Stat {
            name,
            state: *field(3)?.as_bytes().first()?,
            parent: whole(4)?,
            group: whole(5)?,
            busy: natural(14)?.saturating_add(natural(15)?),
            priority: whole(18)?,
            threads: natural(20)?.try_into().unwrap_or(u32::MAX),
            start: natural(22)?,
            processor: natural(39).and_then(|number| number.try_into().ok()).unwrap_or(0),
        })
    }

    /// It has ended and has not been collected.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// State and counters of the process of this number. None where the system does not tell.
pub fn stat(pid: i32) -> Option<Stat> {
    sys::stat(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_any_byte() {
        let line = b"17 (a ) b\n) S 1 18 17 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 8192000 25 1844 1 1 0 0 0 0 0 0 \
                     0 0 0 0 17 2 0 0 0 0 0";
        let expected = Stat {
            name: "a ) b?".into(),
            state: b'S',
            parent: 1,
            group: 18,
            busy: 200,
            priority: 20,
            threads: 3,
            start: 1000,
            processor: 2,
        };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse(b"17 (a) S 1"), None);
        assert_eq!(Stat::parse(b")("), None);
        assert_eq!(Stat::parse(b""), None);
    }
}
