//! Plugins that mean harm, made by hand.

use std::fs;
use std::path::PathBuf;

use hydrant_abi::ABI_VERSION;
use hydrant_tests::target_dir;

/// `Ok(Handled)`: nothing consumed, no tick, and more to be said.
pub(crate) const HANDLED: &str = "(i64.store (i32.const 131072) (i64.const 0x100000000)) (i32.const 5)";
/// The same with nothing more to be said.
const QUIET: &str = "(i64.store (i32.const 131072) (i64.const 0)) (i32.const 5)";

/// A plugin of which calls of these do as they are told: all others answer well.
pub(crate) fn hostile(name: &str, version: u32, handle: &str, poll: &str) -> PathBuf {
    let handle = format!(r#"(func (export "hydrant_handle") (param i32) (result i32) {handle})"#);
    written(name, version, &handle, poll)
}

/// A plugin that does nothing, and nothing wrong, but on that node of several, where `handle` is how it takes inputs with
/// that number. It refuses messages of node 1 as contradicting its state.
pub(crate) fn hostile_on(name: &str, node: u32, input: u32, handle: &str, poll: &str) -> PathBuf {
    // A record is the time, which is seven bits a byte, the input's number and its fields.
    let handle = format!(
        r#"(global $node (mut i32) (i32.const -1))
        (func (export "hydrant_handle") (param i32) (result i32)
            (local $at i32)
            (local.set $at (i32.const 1024))
            (loop $time
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if $time (i32.and (i32.load8_u (i32.sub (local.get $at) (i32.const 1))) (i32.const 128))))
            (if (i32.eqz (i32.load8_u (local.get $at)))
                (then (global.set $node (i32.load8_u (i32.add (local.get $at) (i32.const 1))))))
            (if (i32.eq (i32.load16_u (local.get $at)) (i32.const 0x0107))
                (then (i32.store (i32.const 131072) (i32.const 0x0e0001)) (return (i32.const 3))))
            (if (i32.and (i32.eq (global.get $node) (i32.const {node}))
                         (i32.eq (i32.load8_u (local.get $at)) (i32.const {input})))
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
        (func (export "hydrant_abi_version") (result i32) (i32.const {version}))
        (func (export "hydrant_input_address") (result i32) (i32.const 1024))
        (func (export "hydrant_input_size") (result i32) (i32.const 65536))
        (func (export "hydrant_output_address") (result i32) (i32.const 131072))
        (func (export "hydrant_output_size") (result i32) (i32.const 65536))
        {handle}
        (func (export "hydrant_poll") (result i32) {poll})
        (func (export "hydrant_snapshot") (result i32) (unreachable))
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
