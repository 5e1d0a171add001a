//! Plugins that mean harm, made by hand.

use std::fs;
use std::path::PathBuf;

use hydrant_abi::ABI_VERSION;
use hydrant_tests::target_dir;

/// The number of the input of a client's bytes.
pub(crate) const BYTES: u32 = 17;
/// An input is accepted, nothing is consumed, no tick, and there is more to be said.
pub(crate) const HANDLED: &str = "(call $accepted (i32.const 1))";
/// The same with nothing more to be said.
pub(crate) const QUIET: &str = "(call $accepted (i32.const 0))";

/// A poll that returns one output, and says that there is more: its record, at most eight bytes, is this number.
pub(crate) fn says(record: u64, len: u32) -> String {
    format!("(call $said (i64.const {record:#x}) (i32.const {len}) (i32.const 1))")
}

/// The same without more.
pub(crate) fn says_once(record: u64, len: u32) -> String {
    format!("(call $said (i64.const {record:#x}) (i32.const {len}) (i32.const 0))")
}

/// A plugin of which calls of these do as they are told: all others answer well.
pub(crate) fn hostile(name: &str, version: u32, handle: &str, poll: &str) -> PathBuf {
    let handle = format!(r#"(func (export "hydrant_handle") (param i32 i32 i64) (result i32) {handle})"#);
    written(name, version, &handle, poll)
}

/// A plugin that does nothing, and nothing wrong, but on that node of several, where `handle` is how it takes inputs with
/// that number. It refuses messages of node 1 as contradicting its state.
pub(crate) fn hostile_on(name: &str, node: u32, input: u32, handle: &str, poll: &str) -> PathBuf {
    // An input is a connection or -1, a length, and bytes or a record, which begins with the input's number.
    let handle = format!(
        r#"(global $node (mut i32) (i32.const -1))
        (func (export "hydrant_handle") (param i32 i32 i64) (result i32)
            (local $number i32)
            (local.set $number (i32.const {BYTES}))
            (if (i32.eq (i32.load (i32.const 1024)) (i32.const -1))
                (then (local.set $number (i32.load8_u (i32.const 1032)))))
            (if (i32.eqz (local.get $number))
                (then (global.set $node (i32.load8_u (i32.const 1033)))))
            (if (i32.and (i32.eq (local.get $number) (i32.const 7))
                         (i32.eq (i32.load8_u (i32.const 1033)) (i32.const 1)))
                (then (return (call $refused (i32.const 0x0e00)))))
            (if (i32.and (i32.eq (global.get $node) (i32.const {node}))
                         (i32.eq (local.get $number) (i32.const {input})))
                (then (return (block (result i32) {handle}))))
            {QUIET})"#
    );
    written(name, ABI_VERSION, &handle, poll)
}

fn written(name: &str, version: u32, handle: &str, poll: &str) -> PathBuf {
    let text = format!(
        r#"(module
        (memory (export "memory") 4 64)
        (func $begun (param i32) (result i32)
            (i32.store (i32.const 131072) (i32.const 0)) (i32.const 3))
        (func $left (param $results i32) (param $outputs i32) (param $flags i32) (param $error i32)
            (i32.store (i32.const 131072) (local.get $results))
            (i32.store (i32.const 131076) (local.get $outputs))
            (i32.store (i32.const 131080) (local.get $flags))
            (i32.store (i32.const 131084) (local.get $error)))
        (func $accepted (param $flags i32) (result i32)
            (call $left (i32.const 1) (i32.const 0) (local.get $flags) (i32.const 0))
            (i64.store (i32.const 131096) (i64.const 0)) (i32.const 32))
        (func $refused (param $error i32) (result i32)
            (call $left (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2))
            (i32.store (i32.const 131096) (local.get $error)) (i32.const 26))
        (func $said (param $record i64) (param $length i32) (param $flags i32) (result i32)
            (call $left (i32.const 0) (i32.const 1) (local.get $flags) (i32.const 0))
            (i32.store (i32.const 131096) (i32.const -1))
            (i32.store (i32.const 131100) (local.get $length))
            (i64.store (i32.const 131104) (local.get $record))
            (i32.add (i32.const 32) (local.get $length)))
        (func (export "hydrant_abi_version") (result i32) (i32.const {version}))
        (func (export "hydrant_input_address") (result i32) (i32.const 1024))
        (func (export "hydrant_input_size") (result i32) (i32.const 65536))
        (func (export "hydrant_output_address") (result i32) (i32.const 131072))
        (func (export "hydrant_output_size") (result i32) (i32.const 65536))
        {handle}
        (func (export "hydrant_poll") (param i32) (result i32) {poll})
        (func (export "hydrant_snapshot") (param i32) (result i32) (unreachable))
        (export "hydrant_reserve" (func $begun))
        (export "hydrant_snapshot_room" (func $begun))
        (export "hydrant_restore" (func $begun)))"#
    );
    let dir = target_dir().join("hostile");
    fs::create_dir_all(&dir).expect("the build directory can be written to");
    let file = dir.join(format!("{name}.wasm"));
    fs::write(&file, wat::parse_str(text).expect("the text is a module")).expect("the folder was just made");
    file
}
