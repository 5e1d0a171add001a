//! Checks of docs/wasm-abi.md: its exchange, byte by byte against the plugin, and its names against hydrant-abi.
//!
//! A line `call[numbers](bytes) -> bytes` of the exchange is a call of `hydrant_call` with these parameters behind the length
//! of the bytes in the input buffer, and the bytes that it leaves. Bytes are hexadecimal, texts in quotes, or numbers such as
//! `12_u32`. `#` starts a comment. A line that begins with blanks continues the previous one.

use std::any::type_name;
use std::fmt::Debug;
use std::fs;

use hydrant_abi::turn::{self, InputResult, Part, TurnHead};
use hydrant_abi::{ABI_VERSION, CallError, MemorySpan, ReserveCall, StartResult, exports};
use hydrant_core::fault::{Damage, Malformed, Slab};
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{Exit, Fault, Input, Limit, Output, Refusal};
use serde::de::DeserializeOwned;
use wasmtime::{Engine, Instance, Module, Store, Val};

/// Returns the lines of the document's exchange, continued lines joined.
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

/// Parses pairs of hexadecimal digits, numbers and texts in quotes.
fn bytes(text: &str) -> Vec<u8> {
    let pieces = text.split('"').enumerate();
    let piece = |(at, piece): (usize, &str)| {
        if at % 2 == 1 {
            return piece.replace("\\n", "\n").into_bytes();
        }
        piece.split_whitespace().flat_map(word).collect()
    };
    pieces.flat_map(piece).collect()
}

/// Parses a pair of hexadecimal digits or a number with its type.
fn word(word: &str) -> Vec<u8> {
    let number =
        |digits: &str, radix| u64::from_str_radix(digits, radix).unwrap_or_else(|e| panic!("{word}: {e}"));
    match word.split_once('_') {
        Some((digits, "u32")) => (number(digits, 10) as u32).to_le_bytes().into(),
        Some((digits, "u64")) => number(digits, 10).to_le_bytes().into(),
        _ => vec![u8::try_from(number(word, 16)).unwrap_or_else(|e| panic!("{word}: {e}"))],
    }
}

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wasm-abi.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_record_and_export_is_documented() {
    let document = document();
    let records = [
        type_name::<ReserveCall>(),
        type_name::<StartResult>(),
        type_name::<MemorySpan>(),
        type_name::<CallError>(),
    ];
    for record in records {
        let name = record.rsplit("::").next().unwrap().trim_end_matches("<'_>");
        assert!(document.contains(&format!("- `{name}`: ")), "{name}");
    }
    for export in exports::ALL {
        assert!(document.contains(&format!("| `{export}")), "{export}");
    }
    for (name, fields, len) in [
        ("Part", Part::FIELDS, Part::LEN),
        ("TurnHead", TurnHead::FIELDS, TurnHead::LEN),
        ("InputResult", InputResult::FIELDS, InputResult::LEN),
    ] {
        let fields: Vec<String> = fields.iter().map(|(name, of)| format!("`{name}: {of}`")).collect();
        let row = format!("| `{name}` | {len} | {} |", fields.join(", "));
        assert!(document.contains(&row), "{row}");
    }
    for (name, value) in
        [("INPUTS_MAX", turn::INPUTS_MAX), ("MORE", turn::MORE), ("DEADLINE", turn::DEADLINE)]
    {
        assert!(document.contains(&format!("`{name}` ({value})")), "{name}");
    }
    for (name, value) in [("RECORD", turn::RECORD), ("FULL", turn::FULL)] {
        assert!(document.contains(&format!("`{name}` ({value:#x})")), "{name}");
    }
    assert!(document.contains(&format!("| {ABI_VERSION}, the version of this page")));
}

/// Returns the record of the enum variant with this number. All of its fields are zero.
fn record(number: u8) -> [u8; 33] {
    let mut record = [0; 33];
    record[0] = number;
    record
}

/// Returns the name of a variant.
fn name(variant: impl Debug) -> String {
    let shown = format!("{variant:?}");
    shown.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Returns the names of an enum's variants by number.
fn variants<T: DeserializeOwned + Debug>() -> Vec<String> {
    let decode = |number| postcard::from_bytes::<T>(&record(number)).ok();
    (0..=127).map_while(decode).map(name).collect()
}

#[test]
fn every_variant_has_its_documented_number() {
    let document = document();
    let check = |name: &str, variants: Vec<String>| {
        let list = document.split(&format!("\n- `{name}`: 0 `")).nth(1).unwrap_or_else(|| panic!("{name}"));
        let list = list.split("\n- ").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        let list = format!("0 `{}", list.join(" "));
        for (number, variant) in variants.iter().enumerate() {
            assert!(list.contains(&format!("{number} `{variant}")), "{name}: {number} {variant}");
        }
        assert!(!list.contains(&format!(" {} `", variants.len())), "{name} has {} variants", variants.len());
    };
    check("CallError", variants::<CallError>());
    check("Exit", variants::<Exit>());
    check("Stream", variants::<Stream>());
    check("Closing", variants::<Closing>());
    check("Malformed", variants::<Malformed>());
    check("Cause", variants::<Cause>());
    check("Protocol", variants::<Protocol>());
    check("Limit", variants::<Limit>());
    check("Fault", variants::<Fault>());
    check("Slab", variants::<Slab>());
    check("Refusal", variants::<Refusal>());
    check("Damage", variants::<Damage>());
}

#[test]
fn every_input_and_output_has_its_documented_number() {
    let document = document();
    let inputs =
        (0..=127).map_while(|number| postcard::from_bytes::<Input<'_>>(&record(number)).ok().map(name));
    let outputs =
        (0..=127).map_while(|number| postcard::from_bytes::<Output<'_>>(&record(number)).ok().map(name));
    for (title, variants) in
        [("### Input\n", inputs.collect::<Vec<_>>()), ("### Output\n", outputs.collect())]
    {
        let table = document.split(title).nth(1).unwrap().split("\n##").next().unwrap();
        let rows =
            table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| number")).count();
        assert_eq!(rows, variants.len(), "{title}");
        for (number, variant) in variants.iter().enumerate() {
            assert!(table.contains(&format!("\n| {number} | `{variant}` |")), "{number} {variant}");
        }
    }
}

#[test]
fn the_documented_exchange_matches_the_plugin() {
    let document = document();
    let engine = Engine::default();
    let module = Module::from_file(&engine, crate::common::file()).unwrap();
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    let memory = instance.get_memory(&mut store, exports::MEMORY).unwrap();
    let mut number = |name: &str| {
        instance.get_typed_func::<(), u32>(&mut store, name).unwrap().call(&mut store, ()).unwrap()
    };
    let version = number(exports::ABI_VERSION);
    let [input, output] = [exports::INPUT_ADDRESS, exports::OUTPUT_ADDRESS].map(|name| number(name) as usize);
    assert_eq!(version, ABI_VERSION);
    let mut snapshots: Vec<Vec<u8>> = Vec::new();
    let lines = lines(&document);
    assert!(lines.len() > 10, "{lines:?}");
    for line in &lines {
        let (call, left) = line.split_once("->").unwrap_or_else(|| panic!("{line}"));
        let (call, given) = call.trim().trim_end_matches(')').split_once('(').unwrap();
        let (name, numbers) = call.trim_end_matches(']').split_once('[').unwrap_or((call, ""));
        let name = format!("hydrant_{name}");
        let given = bytes(given);
        memory.write(&mut store, input, &given).unwrap();
        let function = instance.get_func(&mut store, &name).unwrap();
        let numbers = numbers.split(',').map(str::trim).filter(|number| !number.is_empty());
        let len =
            (![exports::POLL, exports::SNAPSHOT].contains(&name.as_str())).then_some(given.len() as u64);
        let numbers = len.into_iter().chain(numbers.map(|number| number.parse().unwrap()));
        let numbers: Vec<Val> = function
            .ty(&store)
            .params()
            .zip(numbers)
            .map(|(of, number)| if of.is_i64() { Val::I64(number as i64) } else { Val::I32(number as i32) })
            .collect();
        let mut results = [Val::I32(0)];
        function.call(&mut store, &numbers, &mut results).unwrap_or_else(|e| panic!("{line}: {e}"));
        let len = results[0].unwrap_i32();
        let mut record = vec![0; len as usize];
        memory.read(&store, output, &mut record).unwrap();
        if name == exports::SNAPSHOT {
            // The address is not documented.
            snapshots.push(record);
            continue;
        }
        assert!(record == bytes(left), "{line}\nleaves {record:02x?}");
    }
    assert!(snapshots.iter().all(|record| record.first() == Some(&0)), "{snapshots:?}");
}
