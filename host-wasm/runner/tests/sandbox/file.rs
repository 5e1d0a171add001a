//! Checks of the file hydrant.wasm: length, no imports, no floating point, bounded memory, exports.

use std::fs;

use wasmparser::{Operator, Parser, Payload};

/// Maximum length of `hydrant.wasm` in bytes.
const LEN_MAX: usize = 500 * 1024;

#[test]
fn the_file_is_small_and_has_no_imports_and_no_floats() {
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
    // The linker adds exports that begin with underscores.
    exports.retain(|name| !name.starts_with("__"));
    let mut expected = hydrant_abi::exports::ALL;
    expected.sort_unstable();
    assert_eq!(exports, expected);
}
