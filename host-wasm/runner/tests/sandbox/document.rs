//! The exchange printed in docs/wasm-abi.md, played against the plugin byte by byte.
//!
//! A line `call(bytes) -> bytes` of its examples is a call of `hydrant_call` with a record, in hexadecimal, and the
//! record that is left; `#` starts a comment, and a line that begins with blanks goes on with the one before.

use std::fs;

use wasmtime::{Engine, Instance, Module, Store};

/// The lines of the document's examples, those that go on put together.
fn lines(document: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line == "```abi";
            continue;
        }
        let line = line.split('#').next().unwrap_or_default();
        if !inside || line.trim().is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some(last) if line.starts_with(' ') => last.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// Pairs of hexadecimal digits, and texts in quotes.
fn bytes(text: &str) -> Vec<u8> {
    let pieces = text.split('"').enumerate();
    let piece = |(at, piece): (usize, &str)| {
        if at % 2 == 1 {
            return piece.replace("\\n", "\n").into_bytes();
        }
        let pairs = piece.split_whitespace();
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_else(|e| panic!("{pair}: {e}"))).collect()
    };
    pieces.flat_map(piece).collect()
}

#[test]
fn the_printed_exchange_is_what_the_plugin_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wasm-abi.md");
    let document = fs::read_to_string(path).unwrap();
    let engine = Engine::default();
    let module = Module::from_file(&engine, crate::common::file()).unwrap();
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    let memory = instance.get_memory(&mut store, "memory").unwrap();
    let mut number = |name: &str| {
        instance.get_typed_func::<(), u32>(&mut store, name).unwrap().call(&mut store, ()).unwrap()
    };
    let version = number("hydrant_abi_version");
    let [input, output] =
        ["hydrant_input_address", "hydrant_output_address"].map(|name| number(name) as usize);
    assert!(document.contains(&format!("| {version}, the version of this page")), "it is of another version");
    let mut snapshots: Vec<Vec<u8>> = Vec::new();
    let lines = lines(&document);
    assert!(lines.len() > 10, "{lines:?}");
    for line in &lines {
        let (call, left) = line.split_once("->").unwrap_or_else(|| panic!("{line}"));
        let (name, given) = call.trim().trim_end_matches(')').split_once('(').unwrap();
        let name = format!("hydrant_{name}");
        let given = bytes(given);
        memory.write(&mut store, input, &given).unwrap();
        let len = if matches!(name.as_str(), "hydrant_poll" | "hydrant_snapshot") {
            instance.get_typed_func::<(), u32>(&mut store, &name).unwrap().call(&mut store, ()).unwrap()
        } else {
            let call = instance.get_typed_func::<u32, u32>(&mut store, &name).unwrap();
            call.call(&mut store, given.len() as u32).unwrap()
        };
        let mut record = vec![0; len as usize];
        memory.read(&store, output, &mut record).unwrap();
        if name == "hydrant_snapshot" {
            // Where it stands is the module's own business.
            snapshots.push(record);
            continue;
        }
        assert!(record == bytes(left), "{line}\nleaves {record:02x?}");
    }
    assert!(snapshots.iter().all(|record| record.first() == Some(&0)), "{snapshots:?}");
}
