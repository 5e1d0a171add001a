//! Doc comments of types, fields, variants and constants, from the sources.

use std::collections::BTreeMap;
use std::fs;

/// Files with the types of the ABI, from the folder of this crate.
const SOURCES: &[&str] = &[
    "src/lib.rs",
    "src/turn.rs",
    "../../core/src/fault.rs",
    "../../core/src/ids.rs",
    "../../core/src/limits.rs",
    "../../core/wire/src/error.rs",
    "../../core/wire/src/limits.rs",
    "../../core/src/server/io.rs",
    "../../core/src/time.rs",
    "../../core/src/trace.rs",
    "../../core/wire/src/lib.rs",
];

/// Texts by path: `Type`, `Type.field`, `Enum.Variant.field`, `CONSTANT` or `module.CONSTANT`.
pub(crate) struct Docs(BTreeMap<String, String>);

impl Docs {
    /// Reads the sources.
    pub(crate) fn read() -> Docs {
        let mut docs = Docs(BTreeMap::new());
        for source in SOURCES {
            let path = format!("{}/{source}", env!("CARGO_MANIFEST_DIR"));
            docs.scan(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")));
        }
        docs
    }

    /// Returns a text.
    pub(crate) fn text(&self, path: &str) -> String {
        self.0.get(path).unwrap_or_else(|| panic!("{path} has no doc comment in {SOURCES:?}")).clone()
    }

    /// Adds the documented items of a file. The levels are those of rustfmt's indentation.
    fn scan(&mut self, source: &str) {
        let mut path: Vec<&str> = Vec::new();
        let mut text: Vec<&str> = Vec::new();
        for line in source.lines() {
            let item = line.trim_start();
            let level = (line.len() - item.len()) / 4;
            if let Some(doc) = item.strip_prefix("///") {
                text.push(doc.strip_prefix(' ').unwrap_or(doc));
                continue;
            }
            if item.starts_with("#[") || item.starts_with("// ") {
                continue;
            }
            let words = ["pub struct ", "pub enum ", "pub const ", "pub mod ", "pub "];
            let rest = words.iter().find_map(|word| item.strip_prefix(word)).unwrap_or(item);
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            // `InputOf<B, T>` is the description of `Input`, which borrows its bytes and texts.
            let name = name.strip_suffix("Of").filter(|_| rest.contains("Of<")).unwrap_or(name);
            if !text.is_empty() && !name.is_empty() {
                // A macro's invocation, around a type, has no name.
                path.truncate(level);
                path.push(name);
                self.0.entry(path.join(".")).or_insert_with(|| plain(&text.join("\n")));
            }
            if level == 0 && item.starts_with('}') {
                path.clear();
            }
            text.clear();
        }
    }
}

/// Returns a comment without links and line ends. Paragraphs stay apart.
fn plain(comment: &str) -> String {
    let mut rest = comment;
    let mut text = String::new();
    while let Some(start) = rest.find('[') {
        let (front, link) = rest.split_at(start);
        let end = link.find(']').expect("a link ends");
        text.push_str(front);
        text.push_str(&link[1..end].replace("crate::", "").replace("super::", ""));
        rest = &link[end + 1..];
        if rest.starts_with('(') {
            rest = &rest[rest.find(')').expect("the target of a link ends") + 1..];
        }
    }
    text.push_str(rest);
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn links_and_line_ends_are_removed() {
    let comment = "At most [`crate::limits::KEY_MAX`] bytes,\nas [inputs](Input::Bytes).\n\nNot `None`.";
    assert_eq!(plain(comment), "At most `limits::KEY_MAX` bytes, as inputs.\n\nNot `None`.");
}
