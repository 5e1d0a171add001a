//! Check of `hydrant-abi.json`, the description of the ABI for hosts in other languages, against the types of this crate.
//!
//! `HYDRANT_WRITE_ABI=1 cargo test -p hydrant-abi --test description` writes the file.

mod docs;
mod trace;

use std::collections::BTreeSet;
use std::fs;

use docs::Docs;
use hydrant_abi::turn::{self, InputResult, Part, TurnHead};
use hydrant_abi::{ABI_VERSION, CallError, MemorySpan, ReserveCall, StartResult, exports};
use hydrant_core::fault::{Damage, Malformed, Slab};
use hydrant_core::server::{Consumed, FenceMode, JobSpec};
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{
    ConnId, Exit, Fault, Input, JobId, Limit, Limits, Output, Rank, Refusal, Time, UpcallId, limits,
};
use serde::Serialize;
use serde_json::Value;
use trace::{Kind, Shape, describe};

/// The types that have names in the description, those of records first.
fn types() -> Vec<(&'static str, Kind)> {
    vec![
        describe::<ReserveCall>(),
        describe::<Limits>(),
        describe::<StartResult>(),
        describe::<Time>(),
        describe::<Input<'_>>(),
        describe::<Consumed>(),
        describe::<Output<'_>>(),
        describe::<MemorySpan>(),
        describe::<CallError>(),
        describe::<JobId>(),
        describe::<Rank>(),
        describe::<ConnId>(),
        describe::<UpcallId>(),
        describe::<JobSpec<'_>>(),
        describe::<FenceMode>(),
        describe::<Exit>(),
        describe::<Stream>(),
        describe::<Closing>(),
        describe::<Malformed>(),
        describe::<Cause>(),
        describe::<Protocol>(),
        describe::<Limit>(),
        describe::<Fault>(),
        describe::<Slab>(),
        describe::<Refusal>(),
        describe::<Damage>(),
    ]
}

/// Names and values of constants.
macro_rules! constants {
    ($module:ident: $($name:ident)*) => { vec![$((stringify!($name), Value::from($module::$name))),*] };
}

/// The fixed layouts: names, and names and types of their fields.
fn layouts() -> [(&'static str, &'static [(&'static str, &'static str)]); 3] {
    [("Part", Part::FIELDS), ("TurnHead", TurnHead::FIELDS), ("InputResult", InputResult::FIELDS)]
}

fn constants() -> Vec<(&'static str, Value)> {
    let prefix = str::from_utf8(limits::NODE_ATTR_PREFIX).expect("it is ASCII");
    let mut constants = constants! { limits:
        KEY_MAX VALUE_MAX JOBID_MAX RECORD_HEADER MESSAGE_MAX PENDING_MAX MESSAGE_TEXT_MAX ABORT_TEXT_MAX NAME_MAX PORT_MAX PSET_NAME_MAX
        SPAWN_PROGRAMS_MAX SPAWN_BYTES_MIN CUT_OFF_DELAY PEER_MESSAGE_MAX
    };
    constants.push(("NODE_ATTR_PREFIX", prefix.into()));
    constants
}

/// What the input buffer holds for an export, and what the export leaves in the output buffer.
fn signature(export: &str) -> (Option<&'static str>, Option<Leaves>) {
    let result = |result| Some(Leaves::Result { result });
    match export {
        exports::RESERVE => (Some("ReserveCall"), result("StartResult")),
        exports::HANDLE => (Some("Part"), Some(Leaves::Layout { layout: "TurnHead" })),
        exports::POLL => (None, Some(Leaves::Layout { layout: "TurnHead" })),
        exports::SNAPSHOT => (None, result("MemorySpan")),
        exports::SNAPSHOT_ROOM => (Some("length"), result("MemorySpan")),
        exports::RESTORE => (Some("snapshot"), result("StartResult")),
        _ => (None, None),
    }
}

#[derive(Serialize)]
struct Description {
    abi_version: u32,
    encoding: &'static str,
    exports: Vec<Export>,
    constants: Vec<Constant>,
    layouts: Vec<Layout>,
    layout_constants: Vec<Constant>,
    types: Vec<Type>,
}

#[derive(Serialize)]
struct Export {
    name: &'static str,
    doc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    takes: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaves: Option<Leaves>,
}

/// Record that a call leaves.
#[derive(Serialize)]
#[serde(untagged)]
enum Leaves {
    /// The record of a type or of an error.
    Result { result: &'static str },
    /// A layout.
    Layout { layout: &'static str },
}

#[derive(Serialize)]
struct Constant {
    name: &'static str,
    doc: String,
    value: Value,
}

/// Numbers of fixed length, one behind the other.
#[derive(Serialize)]
struct Layout {
    name: &'static str,
    doc: String,
    fields: Vec<Field>,
}

/// A named type. It has a `type`, `fields` or `variants`.
#[derive(Serialize)]
struct Type {
    name: &'static str,
    doc: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    shape: Option<Shape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<Field>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variants: Option<Vec<Variant>>,
}

#[derive(Serialize)]
struct Field {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    #[serde(rename = "type")]
    shape: Shape,
    #[serde(skip_serializing_if = "String::is_empty")]
    doc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
}

#[derive(Serialize)]
struct Variant {
    number: usize,
    name: &'static str,
    doc: String,
    fields: Vec<Field>,
}

/// Returns the default of a field, from the constructors of the types that have some.
fn default(path: &str) -> Option<Value> {
    let (record, field) = path.split_once('.')?;
    let record = match record {
        "Limits" => serde_json::to_value(Limits::NONE),
        "JobSpec" if !["job", "name", "size"].contains(&field) => {
            serde_json::to_value(JobSpec::new(JobId(0), "", 0))
        }
        _ => return None,
    };
    record.expect("records of numbers and texts are JSON").get(field).cloned()
}

fn fields(docs: &Docs, owner: &str, fields: Vec<trace::Field>) -> Vec<Field> {
    let field = |field: trace::Field| {
        let path = field.name.map(|name| format!("{owner}.{name}"));
        let doc = path.as_deref().map(|path| docs.text(path)).unwrap_or_default();
        Field { name: field.name, shape: field.shape, doc, default: path.as_deref().and_then(default) }
    };
    fields.into_iter().map(field).collect()
}

fn described(docs: &Docs, (name, kind): (&'static str, Kind)) -> Type {
    let mut described = Type { name, doc: docs.text(name), shape: None, fields: None, variants: None };
    match kind {
        Kind::Newtype(shape) => described.shape = Some(shape),
        Kind::Struct(list) => described.fields = Some(fields(docs, name, list)),
        Kind::Enum(variants) => {
            let variant = |(number, variant): (usize, trace::Variant)| {
                let path = format!("{name}.{}", variant.name);
                let doc = docs.text(&path);
                Variant { number, name: variant.name, doc, fields: fields(docs, &path, variant.fields) }
            };
            described.variants = Some(variants.into_iter().enumerate().map(variant).collect());
        }
    }
    described
}

fn description() -> Description {
    let docs = Docs::read();
    let export = |name: &'static str| {
        let constant = name.trim_start_matches("hydrant_").to_uppercase();
        let (takes, leaves) = signature(name);
        Export { name, doc: docs.text(&format!("exports.{constant}")), takes, leaves }
    };
    let layout = |(name, list): (&'static str, &[(&'static str, &'static str)])| {
        let list = list.iter().map(|&(name, of)| trace::Field { name: Some(name), shape: Shape::Name(of) });
        Layout { name, doc: docs.text(name), fields: fields(&docs, name, list.collect()) }
    };
    let constant = |(name, value)| Constant { name, doc: docs.text(name), value };
    let layout_constants = constants! { turn: INPUTS_MAX RECORD FULL MORE DEADLINE };
    Description {
        abi_version: ABI_VERSION,
        encoding: "postcard 1",
        exports: exports::ALL.into_iter().map(export).collect(),
        constants: constants().into_iter().map(constant).collect(),
        layouts: layouts().into_iter().map(layout).collect(),
        layout_constants: layout_constants.into_iter().map(constant).collect(),
        types: types().into_iter().map(|kind| described(&docs, kind)).collect(),
    }
}

/// Returns the shapes of all fields.
fn shapes(kind: &Kind) -> Vec<&Shape> {
    match kind {
        Kind::Newtype(shape) => vec![shape],
        Kind::Struct(fields) => fields.iter().map(|field| &field.shape).collect(),
        Kind::Enum(variants) => {
            variants.iter().flat_map(|variant| &variant.fields).map(|field| &field.shape).collect()
        }
    }
}

#[test]
fn every_type_of_a_field_is_described() {
    let types = types();
    let names: BTreeSet<_> = types.iter().map(|(name, _)| *name).collect();
    let primitives = ["bool", "u8", "u32", "u64", "i32", "str", "bytes"];
    for (owner, kind) in &types {
        for shape in shapes(kind) {
            let name = shape.name();
            assert!(names.contains(name) || primitives.contains(&name), "{owner} has a field of type {name}");
        }
    }
}

#[test]
fn the_file_is_the_description() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/hydrant-abi.json");
    let mut text = serde_json::to_string_pretty(&description()).expect("its maps have text keys");
    text.push('\n');
    if std::env::var_os("HYDRANT_WRITE_ABI").is_some() {
        fs::write(path, &text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let file = fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(
        file == text,
        "{path} is out of date: run HYDRANT_WRITE_ABI=1 cargo test -p hydrant-abi --test description"
    );
}
