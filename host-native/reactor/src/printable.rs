//! Messages that may be shown on a terminal.

use std::borrow::Cow;

/// Returns a message whose names of programs, files and hosts cannot control the terminal: control characters other than line end
/// and tab, and the characters that reverse the direction of writing or begin a line, are escaped as `\u{1b}`.
///
/// Every message of hydrant passes through this function where it is written, so none has to escape the names in it. The ranks'
/// own output does not.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_control(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns whether a character acts on the terminal, or on the text around it.
pub fn is_control(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        // Separators of lines and paragraphs.
        '\u{2028}' | '\u{2029}' => true,
        _ => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_acts_on_a_terminal_is_escaped() {
        assert!(matches!(printable("rank 3: \"ä\u{2713}\"\n\tof b"), Cow::Borrowed(_)));
        assert_eq!(printable("a\u{1b}[2Jb\r\u{7f}\u{9b}c"), "a\\u{1b}[2Jb\\u{d}\\u{7f}\\u{9b}c");
        assert_eq!(printable("gpj.\u{202e}exe\u{2028}"), "gpj.\\u{202e}exe\\u{2028}");
    }
}
