//! Excerpts of input for error messages.

/// Maximum number of characters of an excerpt.
const EXCERPT_MAX: usize = 60;

/// Returns the beginning of `text` with control characters escaped, and `...` behind it if more follows.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(excerpt("node1"), "node1");
        assert_eq!(excerpt("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(excerpt(&"x".repeat(60)), "x".repeat(60));
        assert_eq!(excerpt(&"x".repeat(61)), format!("{}...", "x".repeat(60)));
    }
}
