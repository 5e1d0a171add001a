//! The plugin's file is what it is said to be: small, without imports, without floating point, of bounded memory.

use std::fs;

use wasmparser::{Operator, Parser, Payload};

/// Longest that `hydrant.wasm` may be, in bytes.
const LEN_MAX: usize = 200 * 1024;

#[test]
fn it_asks_for_nothing_and_computes_in_whole_numbers() {
    let bytes = fs::read(crate::common::file()).unwrap();
    assert!(bytes.len() < LEN_MAX, "{} bytes", bytes.len());
    let (mut memories, mut exports, mut functions) = (Vec::new(), Vec::new(), 0);
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload.unwrap() {
            Payload::ImportSection(section) => {
                let imports: Vec<_> = section.into_iter().flatten().collect();
                assert!(imports.is_empty(), "{imports:?}");
            }
            Payload::MemorySection(section) => memories.extend(section.into_iter().flatten()),
            Payload::ExportSection(section) => {
                exports.extend(section.into_iter().flatten().map(|export| export.name));
            }
            Payload::TypeSection(section) => {
                for function in section.into_iter_err_on_gc_types().flatten() {
                    let types = [function.params(), function.results()].concat();
                    let floats = types
                        .iter()
                        .any(|of| matches!(of, wasmparser::ValType::F32 | wasmparser::ValType::F64));
                    assert!(!floats, "a function of {types:?}");
                }
            }
            Payload::CodeSectionEntry(body) => {
                functions += 1;
                for operator in body.get_operators_reader().unwrap() {
                    let operator: Operator<'_> = operator.unwrap();
                    let name = format!("{operator:?}");
                    assert!(!name.contains("F32") && !name.contains("F64"), "{name}");
                }
            }
            _ => {}
        }
    }
    assert!(functions > 50, "the core is not in it: {functions} functions");
    let [memory] = memories[..] else { panic!("one memory, not {}", memories.len()) };
    let pages = memory.maximum.expect("its memory has a maximum");
    assert!(pages <= (1 << 30) / (64 << 10), "{pages} pages are more than 1 GiB");
    exports.sort_unstable();
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wasm-abi.md")).unwrap();
    let undocumented = |name: &&str| !document.contains(&format!("| `{name}"));
    let unknown: Vec<_> = exports.iter().copied().filter(undocumented).collect();
    // What the linker exports of itself.
    assert!(unknown.iter().all(|name| name.starts_with("__")), "the document does not tell of {unknown:?}");
}
