//! Slurm's short forms of host names, `n[01-03,7],m5`, and of counts, `2(x3),1`.

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
        let numbers = expand_ranges(ranges)?;
        // All names together take as much memory as the longest one for each host.
        let longest = |all: &[String]| all.iter().map(String::len).max().unwrap_or(0);
        if longest(&names) + before.len() + longest(&numbers) > HOST_NAME_MAX {
            return Err(HostlistError::Long(excerpt(entry)));
        }
        if names.len().saturating_mul(numbers.len()) > HOSTS_MAX {
            return Err(HostlistError::TooMany);
        }
        let join = |name: &String| -> Vec<String> {
            numbers.iter().map(|number| format!("{name}{before}{number}")).collect()
        };
        names = names.iter().flat_map(join).collect();
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

/// Expands the text between brackets. The first number of a range gives the minimum number of digits.
fn expand_ranges(ranges: &str) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
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
        if to - from >= (HOSTS_MAX - numbers.len()) as u64 {
            return Err(HostlistError::TooMany);
        }
        let width = first.len();
        if width > HOST_NAME_MAX {
            return Err(HostlistError::Long(excerpt(range)));
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
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
