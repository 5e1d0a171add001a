//! JSON that commands print: one object, whose first members name its form (`docs/json.md`).

use serde::Serialize;

/// Version of all forms. It grows when a member is removed or changes its meaning, and not when one is added.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a, T> {
    form: &'a str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Returns the text of a document, with a line end.
pub(crate) fn document(form: &str, body: &impl Serialize) -> String {
    let document = Document { form, version: VERSION, body };
    let mut text =
        serde_json::to_string_pretty(&document).expect("keys are strings, and memory takes every byte");
    text.push('\n');
    text
}
