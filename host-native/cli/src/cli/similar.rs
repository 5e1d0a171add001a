//! Suggestions for misspelled option names.

/// The candidate with the fewest typing errors relative to `name`, at most one for every four letters.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 4).max(1);
    let rated = candidates.map(|candidate| (distance(name, candidate), candidate));
    let close =
        rated.filter(|&(errors, candidate)| errors <= most && errors < candidate.chars().count().div_ceil(2));
    close.min_by_key(|&(errors, _)| errors).map(|(_, candidate)| candidate)
}

/// Number of inserted, deleted, replaced and swapped letters between two names (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) | (_, 0) => i + j,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if is_swap { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_typing_errors() {
        for (a, b, errors) in
            [("", "", 0), ("ab", "", 2), ("genv", "gevn", 1), ("wdir", "dir", 1), ("abc", "xyz", 3)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (errors, errors), "{a} {b}");
        }
    }

    #[test]
    fn only_near_names_are_suggested() {
        let near = |name| nearest(name, ["genvlist", "hosts", "usize", "rr", "wdir"].into_iter());
        assert_eq!(near("genvlst"), Some("genvlist"));
        assert_eq!(near("host"), Some("hosts"));
        assert_eq!(near("wdri"), Some("wdir"));
        for far in ["zzz", "r", "ro", "x", "ghostlist", "hostgroup"] {
            assert_eq!(near(far), None, "{far}");
        }
    }
}
