//! Slurm's short forms of host names, `n[01-03,7],m5`, and of counts, `2(x3),1`.

use std::fmt::Write;

use crate::error::HostlistError;
use crate::excerpt::excerpt;
use crate::limits::{HOST_NAME_MAX, HOSTS_MAX};

/// Splits a list at its commas. Commas between brackets do not separate.
pub(crate) fn split_entries(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    list.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Expands a list of short forms, in order. In an entry with several brackets the last bracket counts fastest.
///
/// ```
/// let names = hydrant_placement::hostlist::expand("n[01-03,7],m5")?;
/// assert_eq!(names, ["n01", "n02", "n03", "n7", "m5"]);
/// # Ok::<(), hydrant_placement::HostlistError>(())
/// ```
///
/// # Errors
/// The list is invalid or names more than [`HOSTS_MAX`] hosts.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for entry in split_entries(list) {
        names.extend(expand_entry(entry)?);
        if names.len() > HOSTS_MAX {
            return Err(HostlistError::TooMany);
        }
    }
    Ok(names)
}

/// Writes names in their short form, which [`expand`] reverses. Consecutive names that differ in one number share a bracket.
///
/// ```
/// let names = ["n01", "n02", "n03", "n07", "m"];
/// assert_eq!(hydrant_placement::hostlist::compress(names), "n[01-03,07],m");
/// ```
///
/// Names must have no commas and brackets, which hosts' names do not have.
pub fn compress<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut entries: Vec<Entry<'n>> = Vec::new();
    for name in names {
        if !entries.last_mut().is_some_and(|last| last.add(name)) {
            entries.push(Entry { first: name, numbered: None });
        }
    }
    entries.iter().map(Entry::text).collect::<Vec<_>>().join(",")
}

/// Names that share an entry.
struct Entry<'n> {
    first: &'n str,
    /// Their common start and end, and the ranges of numbers between. Missing with one name.
    numbered: Option<(&'n str, &'n str, Vec<Range<'n>>)>,
}

/// First number as it is written, and last number.
struct Range<'n> {
    first: &'n str,
    last: u64,
}

impl<'n> Range<'n> {
    fn new(digits: &'n str) -> Option<Range<'n>> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten().map(|last| Range { first: digits, last })
    }

    /// Adds the next number, if it is that and is written as [`expand`] would.
    fn add(&mut self, digits: &str) -> bool {
        let width = self.first.len();
        let is_next =
            self.last.checked_add(1).is_some_and(|next| digits == format!("{next:0width$}").as_str());
        self.last += u64::from(is_next);
        is_next
    }

    fn text(&self) -> String {
        let width = self.first.len();
        match format!("{:0width$}", self.last) {
            last if last == self.first => last,
            last => format!("{}-{last}", self.first),
        }
    }
}

impl<'n> Entry<'n> {
    /// Adds a name, if it differs from the others in the number only.
    fn add(&mut self, name: &'n str) -> bool {
        let (start, end) = match &self.numbered {
            Some((start, end, _)) => (*start, *end),
            None => around_number(self.first, name),
        };
        let Some(digits) = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)) else {
            return false;
        };
        let (_, _, ranges) = match &mut self.numbered {
            Some(numbered) => numbered,
            None => {
                let first = &self.first[start.len()..self.first.len() - end.len()];
                let (Some(first), Some(_)) = (Range::new(first), Range::new(digits)) else { return false };
                self.numbered.insert((start, end, vec![first]))
            }
        };
        let Some(last) = ranges.last_mut() else { return false };
        if last.add(digits) {
            return true;
        }
        let new = Range::new(digits);
        let is_number = new.is_some();
        ranges.extend(new);
        is_number
    }

    fn text(&self) -> String {
        match &self.numbered {
            Some((start, end, ranges)) => {
                let ranges: Vec<String> = ranges.iter().map(Range::text).collect();
                format!("{start}[{}]{end}", ranges.join(","))
            }
            None => self.first.to_owned(),
        }
    }
}

/// Returns the start and the end of a name that surround the number in which another name differs.
fn around_number<'n>(name: &'n str, other: &str) -> (&'n str, &'n str) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let same = name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    // The number begins before the first difference, if digits are there.
    let start = same - name.as_bytes()[..same].iter().rev().take_while(|byte| is_digit(byte)).count();
    let len = name.as_bytes()[start..].iter().take_while(|byte| is_digit(byte)).count();
    name.split_at_checked(start)
        .map_or((name, ""), |(before, rest)| (before, rest.get(len..).unwrap_or_default()))
}

/// Expands one entry of a list.
pub(crate) fn expand_entry(entry: &str) -> Result<Vec<String>, HostlistError> {
    if entry.trim().is_empty() {
        return Err(HostlistError::Empty);
    }
    let bracket = || HostlistError::Bracket(excerpt(entry));
    let mut names = vec![String::new()];
    let mut rest = entry.trim();
    while let Some((before, behind)) = rest.split_once('[') {
        let (ranges, after) = behind.split_once(']').ok_or_else(bracket)?;
        if before.contains(']') || ranges.contains('[') {
            return Err(bracket());
        }
        let numbers = parse_ranges(ranges)?;
        // All names together take as much memory as the longest one for each host.
        let digits = numbers.iter().map(Numbers::digits).max().unwrap_or(0);
        let longest = names.iter().map(String::len).max().unwrap_or(0) + before.len() + digits;
        if longest > HOST_NAME_MAX {
            return Err(HostlistError::Long(excerpt(entry)));
        }
        let count = names.len().saturating_mul(numbers.iter().map(Numbers::count).sum());
        if count > HOSTS_MAX {
            return Err(HostlistError::TooMany);
        }
        let mut longer = Vec::with_capacity(count);
        for name in &names {
            for &Numbers { from, to, width } in &numbers {
                longer.extend((from..=to).map(|number| {
                    let mut text = String::with_capacity(longest);
                    write!(text, "{name}{before}{number:0width$}").expect("a String takes all text");
                    text
                }));
            }
        }
        names = longer;
        rest = after;
    }
    if rest.contains(']') {
        return Err(bracket());
    }
    if names.len() > 1 && rest.len() > HOST_NAME_MAX {
        return Err(HostlistError::Long(excerpt(entry)));
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// Numbers from the first to the last, with a minimum number of digits. They are at most [`HOSTS_MAX`].
struct Numbers {
    from: u64,
    to: u64,
    width: usize,
}

impl Numbers {
    fn count(&self) -> usize {
        (self.to - self.from) as usize + 1
    }

    /// Digits of the longest one.
    fn digits(&self) -> usize {
        self.width.max(self.to.checked_ilog10().unwrap_or(0) as usize + 1)
    }
}

/// Parses the text between brackets, which has at most [`HOSTS_MAX`] numbers. The first number of a range gives the minimum number
/// of digits.
fn parse_ranges(ranges: &str) -> Result<Vec<Numbers>, HostlistError> {
    let (mut numbers, mut count) = (Vec::new(), 0);
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let number = is_number.then(|| digits.parse::<u64>().ok()).flatten();
            number.ok_or_else(|| HostlistError::Range(excerpt(range)))
        };
        let (from, to) = (number(first)?, number(last)?);
        if to < from {
            return Err(HostlistError::Backwards(excerpt(range)));
        }
        if to - from >= (HOSTS_MAX - count) as u64 {
            return Err(HostlistError::TooMany);
        }
        let width = first.len();
        if width > HOST_NAME_MAX {
            return Err(HostlistError::Long(excerpt(range)));
        }
        let range = Numbers { from, to, width };
        count += range.count();
        numbers.push(range);
    }
    Ok(numbers)
}

/// Expands a list of counts: `2(x3),1` is 2, 2, 2 and 1.
///
/// # Errors
/// A count is invalid, or there are more than [`HOSTS_MAX`].
pub fn expand_counts(list: &str) -> Result<Vec<u32>, HostlistError> {
    let mut counts = Vec::new();
    for entry in list.split(',') {
        let invalid = || HostlistError::Count(excerpt(entry));
        let (count, times) = match entry.trim().split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(invalid)?),
            None => (entry.trim(), "1"),
        };
        let count: u32 = count.parse().map_err(|_| invalid())?;
        let times: usize = times.parse().map_err(|_| invalid())?;
        if times > HOSTS_MAX - counts.len() {
            return Err(HostlistError::TooMany);
        }
        counts.extend(std::iter::repeat_n(count, times));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(list: &str) -> String {
        match expand(list) {
            Ok(names) => names.join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_equal_those_of_scontrol() {
        // Expected: output of `scontrol show hostnames` of Slurm 22.05.
        assert_eq!(expanded("n[01-03,7],m5"), "n01 n02 n03 n7 m5");
        assert_eq!(expanded("x[09-11]"), "x09 x10 x11");
        assert_eq!(expanded("n[9-011]"), "n9 n10 n11");
        assert_eq!(expanded("n[1,01,001]"), "n1 n01 n001");
        assert_eq!(expanded("c1-3"), "c1-3");
        assert_eq!(expanded("[1-2]"), "1 2");
        // Later versions support several brackets.
        assert_eq!(expanded("r[0-1]n[1-2]-ib"), "r0n1-ib r0n2-ib r1n1-ib r1n2-ib");
    }

    #[test]
    fn errors_are_specific() {
        for (list, error) in [
            ("a[1-2", HostlistError::Bracket("a[1-2".to_owned())),
            ("a]1", HostlistError::Bracket("a]1".to_owned())),
            ("a[[1]", HostlistError::Bracket("a[[1]".to_owned())),
            ("a[3-1]", HostlistError::Backwards("3-1".to_owned())),
            ("a[]", HostlistError::Range(String::new())),
            ("a[+1]", HostlistError::Range("+1".to_owned())),
            ("a[1-2-3]", HostlistError::Range("1-2-3".to_owned())),
            ("a,,b", HostlistError::Empty),
            ("", HostlistError::Empty),
            ("a[0-18446744073709551615]", HostlistError::TooMany),
            ("a[0-999][0-999]", HostlistError::TooMany),
            ("a[0-65535],b", HostlistError::TooMany),
            ("a[0-65535,1]", HostlistError::TooMany),
        ] {
            assert_eq!(expand(list), Err(error), "{list}");
        }
        assert_eq!(expand("a[0-65535]").map(|names| names.len()), Ok(HOSTS_MAX));
    }

    /// 64 KiB of text would take 4 GiB of names.
    // Fault: A host list has a number of thousands of digits in brackets
    // Outcome: it is refused, and the error shows its beginning
    // Guarantee: Names longer than 253 bytes are not expanded
    #[test]
    fn names_that_are_too_long_are_not_expanded() {
        let long = "0".repeat(HOST_NAME_MAX);
        for list in [
            format!("a[{long}-60000]"),
            format!("a[0{long}-60000]"),
            format!("{long}[0-60000]"),
            format!("a[0-60000]0{long}"),
            format!("[0-199]{long}[0-199]"),
        ] {
            assert!(matches!(expand(&list), Err(HostlistError::Long(_))), "{list}");
        }
        assert_eq!(expand(&format!("[{long}-{long}]")), Ok(vec![long]));
    }

    #[test]
    fn counts_repeat() {
        assert_eq!(expand_counts("2(x3),1"), Ok(vec![2, 2, 2, 1]));
        assert_eq!(expand_counts("36"), Ok(vec![36]));
        for invalid in ["", "2(x3", "2(3)", "x", "1,,2", "-1", "2(x-1)"] {
            assert!(matches!(expand_counts(invalid), Err(HostlistError::Count(_))), "{invalid}");
        }
        assert_eq!(expand_counts("1(x4000000000)"), Err(HostlistError::TooMany));
    }

    #[test]
    fn short_forms_are_short() {
        for (names, short) in [
            ("n1 n2 n3 n4", "n[1-4]"),
            ("n09 n10 n11 n12", "n[09-12]"),
            ("n9 n10 n010", "n[9-10,010]"),
            ("r1n1 r1n2 r2n1 r2n2", "r1n[1-2],r2n[1-2]"),
            ("n1-ib n2-ib m", "n[1-2]-ib,m"),
            ("a", "a"),
            ("a a b", "a,a,b"),
            ("n1 n1", "n[1,1]"),
            ("10.0.0.1 10.0.0.2 10.0.1.1", "10.0.0.[1-2],10.0.1.1"),
            ("fe80::1 fe80::2 fe80::a", "fe80::[1-2],fe80::a"),
            ("n18446744073709551615 n18446744073709551616", "n18446744073709551615,n18446744073709551616"),
            ("", ""),
        ] {
            assert_eq!(compress(names.split(' ')), short);
        }
        let names: Vec<String> = (1..=10_000).map(|number| format!("node{number:05}")).collect();
        assert_eq!(compress(names.iter().map(String::as_str)), "node[00001-10000]");
    }

    /// An entry and its expansion.
    fn entry() -> impl Strategy<Value = (String, Vec<String>)> {
        let range = (0u64..2000, 0u64..6, 1usize..6, any::<bool>());
        let group = ("[a-z][a-z0-9-]{0,5}", prop::collection::vec(range, 0..4));
        (prop::collection::vec(group, 1..3), "[a-z]{0,3}").prop_map(|(groups, suffix)| {
            let mut text = String::new();
            let mut names = vec![String::new()];
            for (prefix, ranges) in groups {
                text.push_str(&prefix);
                names.iter_mut().for_each(|name| name.push_str(&prefix));
                let mut written = Vec::new();
                let mut numbers = Vec::new();
                for (first, more, width, alone) in ranges {
                    let last = if alone { first } else { first + more };
                    let shown = format!("{first:0width$}");
                    let width = shown.len();
                    written.push(if alone { shown } else { format!("{shown}-{last:0width$}") });
                    numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
                }
                if !written.is_empty() {
                    text.push_str(&format!("[{}]", written.join(",")));
                    names = names
                        .iter()
                        .flat_map(|name| numbers.iter().map(move |n| format!("{name}{n}")))
                        .collect();
                }
            }
            names.iter_mut().for_each(|name| name.push_str(&suffix));
            (text + &suffix, names)
        })
    }

    proptest! {
        #[test]
        fn lists_concatenate_their_entries(parts in prop::collection::vec(entry(), 1..5)) {
            let list: Vec<&str> = parts.iter().map(|(text, _)| text.as_str()).collect();
            let names: Vec<String> = parts.iter().flat_map(|(_, names)| names.clone()).collect();
            prop_assert_eq!(expand(&list.join(",")), Ok(names));
        }

        #[test]
        fn compressed_names_expand(names in prop::collection::vec("[a-c0-2.:_-]{1,6}", 1..40)) {
            let list = compress(names.iter().map(String::as_str));
            prop_assert_eq!(expand(&list), Ok(names), "{}", list);
        }

        #[test]
        fn ranges_are_found_again(parts in prop::collection::vec(entry(), 1..5)) {
            let names: Vec<String> = parts.iter().flat_map(|(_, names)| names.clone()).collect();
            prop_assume!(names.iter().all(|name| !name.is_empty()));
            let list = compress(names.iter().map(String::as_str));
            prop_assert_eq!(expand(&list), Ok(names), "{}", list);
        }

        #[test]
        fn short_counts_expand(runs in prop::collection::vec((0u32..300, 1usize..9), 1..9)) {
            let short = |&(count, times): &(u32, usize)| match times {
                1 => count.to_string(),
                _ => format!("{count}(x{times})"),
            };
            let text: Vec<String> = runs.iter().map(short).collect();
            let long: Vec<u32> = runs.iter().flat_map(|&(count, times)| vec![count; times]).collect();
            prop_assert_eq!(expand_counts(&text.join(",")), Ok(long));
        }

        #[test]
        fn any_text_is_handled_without_panic(text in "[a-c0-9,()x\\[\\]-]{0,24}") {
            let _ = (expand(&text), expand_counts(&text));
        }
    }
}
