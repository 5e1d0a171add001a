//! Checks of docs/wasm-abi.md: its exchange, byte by byte against the plugin, and its names against hydrant-abi.
//!
//! A line `call(bytes) -> bytes` of the exchange is a call of `hydrant_call` with a record in hexadecimal, and the record
//! that results. `#` starts a comment. A line that begins with blanks continues the previous one.

use std::any::type_name;
use std::fmt::Debug;
use std::fs;

use hydrant_abi::{
    ABI_VERSION, CallError, HandleCall, HandleResult, MemorySpan, PollResult, ReserveCall, StartResult,
    exports,
};
use hydrant_core::fault::{Damage, Malformed, Slab};
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{Exit, Fault, Input, Limit, Output, Refusal};
use serde::de::DeserializeOwned;
use wasmtime::{Engine, Instance, Module, Store};

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

/// Parses pairs of hexadecimal digits and texts in quotes.
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

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wasm-abi.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn every_record_and_export_is_documented() {
    let document = document();
    let records = [
        type_name::<ReserveCall>(),
        type_name::<HandleCall<'_>>(),
        type_name::<StartResult>(),
        type_name::<HandleResult>(),
        type_name::<PollResult<'_>>(),
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
        let (name, given) = call.trim().trim_end_matches(')').split_once('(').unwrap();
        let name = format!("hydrant_{name}");
        let given = bytes(given);
        memory.write(&mut store, input, &given).unwrap();
        let len = if [exports::POLL, exports::SNAPSHOT].contains(&name.as_str()) {
            instance.get_typed_func::<(), u32>(&mut store, &name).unwrap().call(&mut store, ()).unwrap()
        } else {
            let call = instance.get_typed_func::<u32, u32>(&mut store, &name).unwrap();
            call.call(&mut store, given.len() as u32).unwrap()
        };
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
