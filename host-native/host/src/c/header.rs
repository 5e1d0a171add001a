//! Check of `hydrant_host.h` against `hydrant-abi.json` and against the functions and structures of this crate.
//!
//! `HYDRANT_WRITE_HEADER=1 cargo test -p hydrant-host --lib header` writes the part that follows from `hydrant-abi.json`.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use super::INPUTS;
use super::error::Code;
use super::types::{DISCONNECTED, NO_HANDSHAKE, NONE, OVERRUN, STRUCTURES};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/hydrant_host.h");
const ABI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host-wasm/abi/hydrant-abi.json");
const BEGIN: &str = "/* BEGIN: generated from hydrant-abi.json */\n";
const END: &str = "/* END */\n";
const WIDTH: usize = 110;

/// Types whose variants have numbers in C.
const ENUMS: [&str; 10] =
    ["Output", "Closing", "Malformed", "Cause", "Exit", "Stream", "Protocol", "FenceMode", "Limit", "Fault"];

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `KillRank` as `Kill_Rank`.
fn with_underscores(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter);
    }
    out
}

/// A name in a documentation text, as in C.
fn c_name(abi: &Value, name: &str) -> String {
    let lower = |name: &str| with_underscores(name).to_lowercase();
    let upper = |name: &str| with_underscores(name).to_uppercase();
    match name.split_once("::") {
        Some(("Input", input)) => format!("hydrant_host_{}", lower(input)),
        Some(("Limits" | "JobSpec" | "Layout", field)) => field.to_owned(),
        Some(("Server", "poll")) => "hydrant_host_next".to_owned(),
        Some((owner, variant)) if ENUMS.contains(&owner) => {
            format!("HYDRANT_{}_{}", upper(owner), upper(variant))
        }
        None if list(abi, "constants").iter().any(|constant| constant["name"] == name) => {
            format!("HYDRANT_{name}")
        }
        _ => name.to_owned(),
    }
}

/// A comment in lines, with names as in C.
fn comment(abi: &Value, text: &str, indent: &str) -> String {
    let text = text.split('`').enumerate();
    let text: String =
        text.map(|(at, part)| if at % 2 == 1 { c_name(abi, part) } else { part.to_owned() }).collect();
    let mut lines = vec![format!("{indent}/*")];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if last.chars().count() + 1 + word.chars().count() > WIDTH - 3 {
            lines.push(format!("{indent}   {word}"));
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines.join("\n") + " */\n"
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a text in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list in {value}"))
}

/// The part of the header that follows from the description of the ABI.
fn generated(abi: &Value) -> String {
    let find = |name: &str| {
        let found = list(abi, "types").iter().find(|described| described["name"] == name);
        found.unwrap_or_else(|| panic!("no type {name}"))
    };
    let mut out = comment(abi, "Version of the ABI of hydrant.wasm, and of this interface.", "");
    writeln!(out, "#define HYDRANT_ABI_VERSION {}\n", abi["abi_version"]).expect("a text takes all");
    for constant in list(abi, "constants") {
        out += &comment(abi, text(constant, "doc"), "");
        writeln!(out, "#define HYDRANT_{} {}", text(constant, "name"), constant["value"])
            .expect("a text takes all");
    }
    for name in ENUMS {
        let described = find(name);
        out += "\n";
        let doc = match name {
            "Output" => "Kinds of hydrant_output.",
            "Fault" => "Faults: an input violates the contract of the server, which is unchanged.",
            _ => text(described, "doc"),
        };
        out += &comment(abi, doc, "");
        out += "enum {\n";
        let variants = list(described, "variants");
        for (at, variant) in variants.iter().enumerate() {
            out += &comment(abi, text(variant, "doc"), "    ");
            let end = if at + 1 == variants.len() { "" } else { "," };
            let names = [name, text(variant, "name")].map(|name| with_underscores(name).to_uppercase());
            writeln!(out, "    HYDRANT_{}_{} = {}{end}", names[0], names[1], variant["number"])
                .expect("a text takes all");
        }
        out += "};\n";
    }
    let limits = find("Limits");
    out += "\n";
    out += &comment(abi, text(limits, "doc"), "");
    out += "typedef struct hydrant_limits {\n";
    for field in list(limits, "fields") {
        assert_eq!(field["type"], "u32");
        out += &comment(abi, text(field, "doc"), "    ");
        writeln!(out, "    uint32_t {};", text(field, "name")).expect("a text takes all");
    }
    out += "} hydrant_limits;\n";
    out
}

#[test]
fn the_header_has_the_numbers_of_the_abi() {
    let abi = serde_json::from_str(&read(ABI)).expect("a test of hydrant-abi has checked it");
    let header = read(HEADER);
    let (before, rest) = header.split_once(BEGIN).expect("the part begins with its mark");
    let (_, after) = rest.split_once(END).expect("the part ends with its mark");
    let wanted = [before, BEGIN, &generated(&abi), END, after].concat();
    if std::env::var_os("HYDRANT_WRITE_HEADER").is_some() {
        fs::write(HEADER, &wanted).unwrap_or_else(|error| panic!("{HEADER}: {error}"));
    }
    assert!(
        read(HEADER) == wanted,
        "{HEADER} is out of date: run HYDRANT_WRITE_HEADER=1 cargo test -p hydrant-host --lib header"
    );
}

/// The header without comments, with one blank between words.
fn declarations() -> String {
    let header = read(HEADER);
    let mut code = String::new();
    for (at, part) in header.split("/*").enumerate() {
        code += if at == 0 { part } else { part.split_once("*/").expect("comments end").1 };
    }
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The declaration of a parameter or field with this type of Rust.
fn declared(name: &str, of: &str) -> String {
    let of = match of {
        "u32" => "uint32_t ",
        "u64" => "uint64_t ",
        "i32" => "int32_t ",
        "usize" => "size_t ",
        "c_int" => "int ",
        "*const c_char" => "const char *",
        "*const c_void" => "const void *",
        "*const u8" => "const unsigned char *",
        "HostLimits" => "hydrant_limits ",
        _ => panic!("{name}: {of} has no name in C"),
    };
    format!("{of}{name}")
}

#[test]
fn structures_have_the_fields_of_the_header() {
    let code = declarations();
    for (name, fields) in STRUCTURES {
        let fields: String = fields.iter().map(|(name, of)| declared(name, of) + "; ").collect();
        let wanted = format!("typedef struct {name} {{ {fields}}} {name};");
        assert!(code.contains(&wanted), "the header lacks {wanted}");
    }
}

#[test]
fn inputs_have_the_parameters_of_the_header() {
    let code = declarations();
    for (name, parameters) in INPUTS {
        let parameters: String =
            parameters.iter().map(|(name, of)| format!(", {}", declared(name, of))).collect();
        let wanted = format!("int {name}(hydrant_host *host{parameters});");
        assert!(code.contains(&wanted), "the header lacks {wanted}");
    }
}

/// Each input of the ABI has a function. Those of bytes and jobs are not in the list, and timeouts have none.
#[test]
fn every_input_has_a_function() {
    let abi: Value = serde_json::from_str(&read(ABI)).expect("a test of hydrant-abi has checked it");
    let input =
        list(&abi, "types").iter().find(|described| described["name"] == "Input").expect("it is there");
    let mut names: Vec<String> = list(input, "variants")
        .iter()
        .map(|variant| format!("hydrant_host_{}", with_underscores(text(variant, "name")).to_lowercase()))
        .collect();
    names.retain(|name| {
        !["hydrant_host_register_job", "hydrant_host_bytes", "hydrant_host_timeout"].contains(&name.as_str())
    });
    names.sort();
    let mut own: Vec<&str> = INPUTS.iter().map(|(name, _)| *name).collect();
    own.sort_unstable();
    assert_eq!(own, names);
}

/// The kinds and reasons of the library are above those of the ABI.
#[test]
fn the_librarys_own_numbers_are_those_of_the_header() {
    let code = declarations();
    for (name, number) in [
        ("OUTPUT_DISCONNECTED", DISCONNECTED),
        ("CLOSING_NO_HANDSHAKE", NO_HANDSHAKE),
        ("CLOSING_OVERRUN", OVERRUN),
    ] {
        let wanted = format!("HYDRANT_{name} = {number}");
        assert!(code.contains(&wanted), "the header lacks {wanted}");
    }
    let abi: Value = serde_json::from_str(&read(ABI)).expect("a test of hydrant-abi has checked it");
    for name in ["Output", "Closing"] {
        let described = list(&abi, "types").iter().find(|described| described["name"] == name);
        let variants = list(described.expect("it is there"), "variants");
        assert!(variants.iter().all(|variant| variant["number"].as_u64() < Some(DISCONNECTED.into())));
    }
}

#[test]
fn codes_have_the_numbers_of_the_header() {
    let code = declarations();
    for (name, number) in Code::ALL {
        let wanted = format!("HYDRANT_ERR_{name} = {}", number as i32);
        assert!(code.contains(&wanted), "the header lacks {wanted}");
    }
    assert_eq!(NONE, u32::MAX);
    assert!(code.contains("#define HYDRANT_NONE UINT32_MAX"));
}
