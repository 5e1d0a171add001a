//! Words that comments, documents, messages and names do without.

use super::{files_below, read, root};

/// Words that hide the subject of a sentence, or that describe a change instead of a state.
const BANNED: &[&str] = &[
    "any more",
    "anybody",
    "everybody",
    "for a while",
    "for now",
    "nobody",
    "no longer",
    "of course",
    "somebody",
    "the way of",
    "turned away",
    "turned down",
    "whatever",
    "whoever",
    "whomever",
];

/// Texts with a banned word that stay: an `errmsg` that clients get, and values in PMI messages.
const FIXED: &[&str] =
    &["nobody has published", "nobody_has_published", "errmsg=nobody", "key=nobody", "group=everybody"];

/// Files that quote banned words, and the history of versions.
const EXEMPT: &[&str] = &["tests/tidy/words.rs", "tests/tidy/main.rs", "CHANGELOG.md"];

#[test]
fn banned_words_are_absent() {
    let mut found = Vec::new();
    for file in files_below(root(), &["rs", "md", "py", "mjs"]) {
        let inner = file.strip_prefix(root()).expect("found below it");
        if EXEMPT.iter().any(|path| inner.ends_with(path)) {
            continue;
        }
        for (number, line) in (1..).zip(read(&file).lines()) {
            found.extend(banned(line).map(|word| format!("{}:{number}: {word}", inner.display())));
        }
    }
    assert!(found.is_empty(), "name the subject, or describe the state:\n{}", found.join("\n"));
}

/// The banned words in a line, in any case.
fn banned(line: &str) -> impl Iterator<Item = &'static str> {
    let mut line = line.to_lowercase();
    for text in FIXED {
        line = line.replace(text, "");
    }
    BANNED.iter().copied().filter(move |word| has_word(&line, word))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_apart = |c: Option<char>| !c.is_some_and(char::is_alphabetic);
        is_apart(line[..at].chars().next_back()) && is_apart(line[at + word.len()..].chars().next())
    })
}

#[test]
fn the_word_check_sees_what_it_should() {
    let words = |line| banned(line).collect::<Vec<_>>();
    assert_eq!(words("/// Whoever asks is turned away."), ["turned away", "whoever"]);
    assert_eq!(words("let nobody = 1; // some body, an Everybodyish name"), ["nobody"]);
    assert_eq!(words("errmsg=nobody has published that name;"), [""; 0]);
}
